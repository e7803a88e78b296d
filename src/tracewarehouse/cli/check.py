"""`tw check`: what looks wrong in runs, and an exit code for it."""

from __future__ import annotations

from functools import partial

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import Session, examples, pass_session, rank_option, result_options
from tracewarehouse.errors import TwError


class FindingsFailed(TwError):
    """Findings that are as grave as `--fail-on` says."""

    exit_code = 3


@click.command(
    epilog=examples(
        "tw check @latest",
        "tw check fp8-on --rank 0-3 -f md > findings.md",
        "tw check fp8-on --fail-on critical",
        "tw check fp8-on --all -f json",
    ),
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--all", "passed", is_flag=True, help="Also what was judged and found well: severity none.")
@click.option(
    "--fail-on",
    type=click.Choice(["info", "warning", "critical"]),
    help="Exit code 3 where a finding is of this severity or a graver one.",
)
@rank_option
@result_options
@pass_session
def check(session: Session, /, runs: tuple[str, ...], passed: bool, fail_on: str | None) -> None:
    """Look for what slows a run down: a waiting data loader, slow launches, exposed communication, …

    Each finding says what is seen and how sure that is, how much time could be saved at most and why not
    more, what to try, and which analysis shows it. Savings of several findings do not add up. Severity info
    means that the trace has no complete step, so that it may not show the usual. `tw list` names the rules,
    in group findings; `tw describe RULE` tells what each looks at, and from where on it is a finding.
    """
    from tracewarehouse.cli.check_text import text
    from tracewarehouse.findings import at_least

    session.runs = runs
    warehouse = session.open()
    found = warehouse.check(passed=passed)
    error = None
    if fail_on is not None and (grave := at_least(found, fail_on)):
        error = FindingsFailed(
            f"{grave} of {len(found)} findings: {fail_on} or graver", "they are told above"
        )
    ranks = sum(len(each.ranks) for each in warehouse.chosen())
    session.out.show(found, error, ranks, words=partial(text, out=session.out))
    if error is not None:
        raise click.exceptions.Exit(error.exit_code)
