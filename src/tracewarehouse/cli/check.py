"""`tw check`: performance findings of runs, as text, and an exit code for CI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from tracewarehouse.cli.output import line_width
from tracewarehouse.cli.paths import resolve
from tracewarehouse.cli.session import (
    Session,
    command,
    complete_runs,
    rank_option,
    result_options,
    strict_runs_option,
    verify_option,
)
from tracewarehouse.errors import DamagedRunError, TwError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.findings import SEVERITIES, UNEXPLAINED, is_of_one_rank
from tracewarehouse.present.render.text import one_line, plural, show
from tracewarehouse.runs.recording import verdict

if TYPE_CHECKING:
    from tracewarehouse.cli.output import Output
    from tracewarehouse.result import Result


class FindingsFailed(TwError):
    """There are findings of at least the severity of `--fail-on`."""

    exit_code = 3


@command(
    "tw check traces/",
    "tw check @latest",
    "tw check fp8-on --rank 0-3 -f md > findings.md",
    "tw check fp8-on --fail-on critical",
    "tw check fp8-on --all -f json",
)
@click.argument("runs", metavar="[RUN|PATH]...", nargs=-1, shell_complete=complete_runs)
@click.option("--all", "passed", is_flag=True, help="Include passing checks (severity none).")
@click.option(
    "--fail-on",
    type=click.Choice(["info", "warning", "critical"]),
    help="Exit with code 3 if a finding has this severity or higher.",
)
@click.option("--brief", is_flag=True, help="Print the recording and the first finding, for a log.")
@verify_option
@strict_runs_option
@rank_option
@result_options
def check(session: Session, /, runs: tuple[str, ...], passed: bool, fail_on: str | None, brief: bool) -> None:
    """Find performance problems in runs or traces, and fixes.

    A PATH is a trace file or a folder of them: it is ingested into the cache, the same content once, and the
    three most severe problems are printed; --all, --json and -f csv have all.

    Each finding has the evidence, a confidence, an upper bound on the saving and what limits it, a
    suggestion, and a command that shows the data. Savings overlap and cannot be summed. Severity info:
    not a fault in itself, or one whose causes have separate findings. Without complete steps, the
    profiling window is analyzed, and the confidence is low. `tw list` shows the rules in group findings;
    `tw describe RULE` shows what a rule tests and its threshold.

    Findings of one cause on one rank are one finding. Which ranks caused the waits at collectives is found
    out once and stored with the run.

    CSV, the default in a pipe, has a line per finding and rank without the suggestions; --wide has all
    columns.
    """
    from tracewarehouse.findings import at_least

    is_answer = session.format is None and session.output is None and session.limit is None and not passed
    session.runs = resolve(session, runs)
    warehouse = session.open()
    findings = warehouse.check(passed=passed)
    if fail_on is not None and (left_out := warehouse.left_out):
        run = left_out[0]
        raise DamagedRunError(f"run {run.run} is damaged and cannot be checked: {run.why}", run.hint)
    error = None
    if fail_on is not None and (failing := at_least(findings, fail_on)):
        error = FindingsFailed(f"{plural(failing, 'finding')} of severity {fail_on} or higher")
    ranks = sum(len(each.ranks) for each in warehouse.selected())
    if not session.json and not session.wide and not brief and session.out.resolved_format == "csv":
        findings = findings.select(*_CSV_COLUMNS)
    stated = [each.removeprefix(UNEXPLAINED) for each in findings.notices if each.startswith(UNEXPLAINED)]
    if not session.json and session.out.resolved_format != "csv":
        # The text states them first.
        first = ("recording: ", UNEXPLAINED)
        findings = replace(findings, notices=tuple(n for n in findings.notices if not n.startswith(first)))
    if brief:
        session.out.print_text("\n".join(_brief(findings, stated, session.place)), findings.rows(), error)
    else:
        most = _MOST if session.place and is_answer else None
        as_text = partial(text, unexplained=stated, out=session.out, place=session.place, most=most)
        session.out.print_result(findings, error, ranks, as_text)
    if error is not None:
        raise click.exceptions.Exit(error.exit_code)


_WIDTH, _MOST = 100, 3
_CSV_COLUMNS = (
    *("run_id", "rank", "severity", "rule", "subject", "culprit", "step", "share", "saving_step_ns"),
    *("saving_ns", "confidence", "observation"),
)
Row = Mapping[str, Any]


def text(
    result: Result, unexplained: Sequence[str], out: Output, place: str = "", most: int | None = None
) -> str:
    """One block per rule and subject of a run, with all its ranks, or for the first ones; most severe first.

    Before them, what the recording can carry, and what takes much time without a finding. `place` is the
    option that selects the warehouse in printed commands.
    """
    rows, recorded = result.rows(), verdict(result.recording, len(result.provenance.runs) > 1)
    blocks: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        blocks.setdefault((row["severity"], row["run_id"], row["rule"], row["subject"]), []).append(row)
    shown = list(blocks.values())[:most]
    if out.resolved_format == "md":
        parts = [f"**Recording: {recorded}**", *(f"**{each}**" for each in unexplained)]
        parts += [f"### {_headline(rows)}"]
        parts += [_markdown(block, place) for block in shown]
    else:
        width = line_width(out) or _WIDTH
        lines = wrap(f"recording: {recorded}", width, subsequent_indent="  ")
        lines += [f"  see: tw show recording{_of_run(result)}{place}"] if result.recording else []
        lines += chain.from_iterable(wrap(each, width, subsequent_indent="  ") for each in unexplained)
        parts = ["\n".join(lines), _headline(rows)]
        parts += [_block(block, width, place) for block in shown]
    if most is not None:
        left = len(rows) - sum(map(len, shown))
        runs = quote(",".join(map(_name, result.provenance.runs)))
        more = [f"{plural(left, 'more finding')}: tw check {runs}{place}"] if left else []
        parts.append("\n".join([*more, f"report: {_report(result, place)}"]))
    return "\n\n".join(parts) + "\n"


def _brief(result: Result, unexplained: Sequence[str], place: str) -> Iterator[str]:
    """The recording, the first finding, and the command that opens the evidence: a line each.

    Between them, what takes much time without a finding.
    """
    yield one_line(f"recording: {verdict(result.recording, len(result.provenance.runs) > 1)}")
    yield from map(one_line, unexplained)
    if first := result.rows()[:1]:
        saving = _saving(first[0]).removesuffix(": ")
        yield f"{_title(first)}: {one_line(first[0]['observation'])}{saving and f' A fix {saving}.'}"
    else:
        yield _headline(first)
    yield f"report: {_report(result, place)}"


def _report(result: Result, place: str) -> str:
    """The command that writes the page about the run with the first finding."""
    runs = (*(row["run_id"] for row in result.rows()), *result.provenance.runs)
    return f"tw report {quote(_name(runs[0]))}{place}"


def _name(run: str) -> str:
    """A run without its version."""
    return run.partition("@v")[0]


def _of_run(result: Result) -> str:
    """The option that selects the run, if there is only one."""
    runs = {each["run_id"] for each in result.recording}
    return f" --run {quote(runs.pop())}" if len(runs) == 1 else ""


def _headline(rows: Sequence[Row]) -> str:
    """The number of findings, in total and by severity."""
    if not rows:
        return "0 findings (--all lists the checks that passed)"
    counts = Counter(row["severity"] for row in rows)
    by_severity = ", ".join(f"{counts[each]} {each}" for each in reversed(SEVERITIES) if counts[each])
    return plural(len(rows), "finding") + (f": {by_severity}" if by_severity else "")


def _block(rows: Sequence[Row], width: int, place: str) -> str:
    fits = partial(wrap, width=max(width - 2, 20), subsequent_indent="  ", break_on_hyphens=False)
    # Commands are not wrapped: a line break would be part of what is pasted.
    lines = [*chain.from_iterable(map(fits, _sentences(rows))), *map(one_line, _evidence(rows[0], place))]
    return "\n".join([_title(rows), *(f"  {line}" for line in lines)])


def _markdown(rows: Sequence[Row], place: str) -> str:
    first, *rest = (*_sentences(rows), *map(one_line, _evidence(rows[0], place)))
    return "\n".join([f"**{_title(rows)}**", "", first, "", *(f"- {line}" for line in rest)])


def _title(rows: Sequence[Row]) -> str:
    worst = rows[0]
    ranks = [row["rank"] for row in rows]
    scope = f"{worst['run_id']} rank{'' if len(ranks) == 1 else 's'} {rank_list(ranks)}"
    return one_line(f"{worst['severity']}: {worst['rule']} ({worst['subject']}) in {scope}")


def _sentences(rows: Sequence[Row]) -> Iterator[str]:
    """The lines of a block without commands; with several ranks, the figures are those of the worst one."""
    worst = rows[0]
    yield one_line(worst["observation"])
    prefix = f"worst: rank {worst['rank']}, " if len(rows) > 1 else ""
    steps = plural(worst["steps"], "complete step") if worst["steps"] else "no complete step"
    occurrences = f", {plural(worst['count'], 'occurrence')}" if worst["count"] else ""
    share, threshold = show(worst["share"], "ratio"), show(worst["threshold"], "ratio")
    analyzed = f"{share} of {show(worst['analyzed_ns'], 'ns')} ({steps})"
    yield f"{prefix}{analyzed}{occurrences}; threshold {threshold}"
    yield one_line(_saving(worst) + worst["saving_limit"])
    yield one_line(f"confidence: {worst['confidence']}")
    if worst["source"]:
        yield one_line(f"source: {worst['source']}")
    yield one_line(f"try: {worst['advice']}")


def _saving(row: Row) -> str:
    """The upper bound on the saving, per step if there are steps, with its share of the analyzed time."""
    if row["saving_ns"] is None:
        return ""
    share = show(row["saving_share"], "ratio")
    if row["saving_step_ns"] is None:
        return f"saves up to {show(row['saving_ns'], 'ns')} of the profiling window ({share}): "
    return f"saves up to {show(row['saving_step_ns'], 'ns')} per step ({share}): "


def _evidence(row: Row, place: str) -> Iterator[str]:
    """The command that shows the data, and the one that writes the worst occurrence as a trace."""
    run, rank, rule = quote(row["run_id"]), row["rank"], row["rule"]
    where = f" --where {_quoted(row['evidence_filter'])}" if row["evidence_filter"] is not None else ""
    one = f" --rank {rank}" if is_of_one_rank(row) else ""
    yield f"see: tw show {row['evidence']} --run {run}{one}{where}{place}"
    if row["from_ns"] is not None:
        length_ns = row["to_ns"] - row["from_ns"]
        lasts = f" (interval of {show(length_ns, 'ns')})" if length_ns else ""
        step = "" if row["step"] is None else f" in step {row['step']}"
        export_command = f"tw export trace {run} --rank {rank} --around {rule} -o {rule}.json.gz{place}"
        yield f"worst occurrence{step}{lasts}: {export_command}"


def _quoted(condition: str) -> str:
    """An argument in double quotes, because conditions contain single ones."""
    special = any(each in condition for each in '"$`\\!')
    return quote(condition) if special else f'"{condition}"'
