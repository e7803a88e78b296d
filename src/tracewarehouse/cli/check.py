"""`tw check`: performance findings of runs, as text, and an exit code for CI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from tracewarehouse.cli.output import line_width
from tracewarehouse.cli.paths import resolve
from tracewarehouse.cli.session import (
    Session,
    command,
    complete_runs,
    engine_options,
    rank_option,
    result_options,
    rows_options,
    strict_runs_option,
    verify_option,
)
from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.errors import DamagedRunError, TwError, UnknownName
from tracewarehouse.findings import UNEXPLAINED, at_least
from tracewarehouse.present.answers import findings_brief, findings_text, stated
from tracewarehouse.present.render.text import plural

if TYPE_CHECKING:
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.result import Result


_MOST = 3  # findings of a path, in a terminal
_CSV_COLUMNS = (
    *("run_id", "rank", "severity", "rule", "subject", "culprit", "step", "share", "saving_step_ns"),
    *("saving_ns", "confidence", "observation"),
)


class FindingsFailed(TwError):
    """There are findings of at least the severity of `--fail-on`."""

    exit_code = 3


@command(
    "tw check traces/",
    "tw check @latest",
    "tw check fp8-on --rank 0-3 -f md > findings.md",
    "tw check fp8-on --fail-on critical",
    "tw check fp8-on --all -f json",
    "tw check 'label:night=1128' -w s3://bucket/warehouse --engine spark",
)
@click.argument("runs", metavar="[RUN|PATH]...", nargs=-1, shell_complete=complete_runs)
@click.option("--all", "passed", is_flag=True, help="Include passing checks (severity none).")
@click.option(
    "--fail-on",
    type=click.Choice(["info", "warning", "critical"]),
    help="Exit with code 3 if a finding has this severity or higher.",
)
@click.option("--brief", is_flag=True, help="Print the recording and the first finding, for a log.")
@click.option(
    "--rule", "rules", multiple=True, metavar="RULE", help="Findings of this rule only (repeatable)."
)
@engine_options
@verify_option
@strict_runs_option
@rank_option
@rows_options
@result_options
def check(
    session: Session,
    /,
    runs: tuple[str, ...],
    passed: bool,
    fail_on: str | None,
    brief: bool,
    rules: tuple[str, ...],
) -> None:
    """Find performance problems in runs or traces, and fixes.

    A PATH is a trace file or a folder of them: it is ingested into the cache, the same content once, and the
    three most severe problems are printed. Without RUN, a line per run, then the most severe problem.

    \fEach finding has the evidence, a confidence, an upper bound on the saving and what limits it, a
    suggestion, and a command that shows the data. Savings overlap and cannot be summed. Severity info:
    not a fault in itself, or one whose causes have separate findings. Without complete steps, the
    profiling window is analyzed, and the confidence is low. `tw list` shows the rules in group findings;
    `tw describe RULE` shows what a rule tests and its threshold.

    Findings of one cause on one rank are one finding. Which ranks caused the waits at collectives is found
    out once and stored with the run.

    -f csv has a line per finding and rank without the suggestions; --wide has all columns.
    """
    is_chosen = passed or rules or session.where or session.columns or session.limit is not None
    is_answer = session.format is None and session.output is None and not is_chosen
    session.prefer_text()
    session.runs = resolve(session, runs)
    warehouse = session.open_on_engine()
    warehouse.selection.pool.is_sparing = True
    findings: Result = warehouse.check(passed=passed)
    if conditions := [*session.where, *_of_rules(warehouse.catalog, rules)]:
        findings, session.where = findings.where(*conditions), ()
    if fail_on is not None and (left_out := warehouse.left_out):
        run = left_out[0]
        raise DamagedRunError(f"run {run.run} is damaged and cannot be checked: {run.why}", run.hint)
    error = None
    if fail_on is not None and (failing := at_least(findings, fail_on)):
        error = FindingsFailed(f"{plural(failing, 'finding')} of severity {fail_on} or higher")
    ranks = sum(len(each.ranks) for each in warehouse.selected())
    if (
        not (session.json or session.wide or session.columns or brief)
        and session.out.resolved_format == "csv"
    ):
        findings = findings.select(*_CSV_COLUMNS)
    unexplained = stated(findings)
    if not session.json and session.out.resolved_format != "csv":
        # The text states them first.
        first = ("recording: ", UNEXPLAINED)
        findings = replace(findings, notices=tuple(n for n in findings.notices if not n.startswith(first)))
    if brief:
        session.out.print_text(
            "\n".join(findings_brief(findings, unexplained, session.place)), findings.rows(), error
        )
    else:
        by_run = is_answer and not runs and len(findings.provenance.runs) > 1
        most_findings = 1 if by_run else _MOST if session.place and is_answer else None
        as_text = partial(
            findings_text,
            unexplained=unexplained,
            as_markdown=session.out.resolved_format == "md",
            width=line_width(session.out),
            place=session.place,
            most=most_findings,
            by_run=by_run,
        )
        session.out.print_result(findings, error, ranks, None if session.columns else as_text)
    if error is not None:
        raise click.exceptions.Exit(error.exit_code)


def _of_rules(catalog: Catalog, rules: Sequence[str]) -> list[str]:
    """The condition for findings of these rules. Raises UnknownName."""
    rule_names = [each.name for each in catalog.rules()]
    for rule in rules:
        if rule not in rule_names:
            raise UnknownName("rule", rule, rule_names)
    return [f"rule IN ({', '.join(map(quote_text, rules))})"] if rules else []
