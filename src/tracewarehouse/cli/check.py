"""`tw check`: what looks wrong in runs, and an exit code for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import Session, examples, pass_session, rank_option, result_options
from tracewarehouse.errors import TwError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.findings import SEVERITIES
from tracewarehouse.render.output import width_of
from tracewarehouse.render.text import count, one_line, show

if TYPE_CHECKING:
    from tracewarehouse.render.output import Output
    from tracewarehouse.result import Result


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
    from tracewarehouse.findings import at_least

    session.runs = runs
    warehouse = session.open()
    found = warehouse.check(passed=passed)
    error = None
    if fail_on is not None and (grave := at_least(found, fail_on)):
        error = FindingsFailed(
            f"{grave} of {len(found)} findings: {fail_on} or graver", "they are told above"
        )
    ranks = sum(len(each.ranks) for each in warehouse.selected())
    session.out.show(found, error, ranks, words=partial(text, out=session.out))
    if error is not None:
        raise click.exceptions.Exit(error.exit_code)


_WIDTH = 100
Row = Mapping[str, Any]


def text(result: Result, out: Output) -> str:
    """A block for each rule and subject of a run, the ranks in which it is so together; worst first."""
    rows = result.rows()
    blocks: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        blocks.setdefault((row["severity"], row["run_id"], row["rule"], row["subject"]), []).append(row)
    if out.chosen_format == "md":
        parts = [f"### {_counted(rows)}", *(_marked(block) for block in blocks.values())]
    else:
        width = width_of(out) or _WIDTH
        parts = [_counted(rows), *(_block(block, width) for block in blocks.values())]
    return "\n\n".join(parts) + "\n"


def _counted(rows: Sequence[Row]) -> str:
    """How many findings, by severity."""
    found = Counter(row["severity"] for row in rows)
    told = ", ".join(f"{found[each]} {each}" for each in reversed(SEVERITIES) if found[each])
    return f"{count(len(rows))} finding{'' if len(rows) == 1 else 's'}" + (f": {told}" if told else "")


def _block(rows: Sequence[Row], width: int) -> str:
    lines = (wrap(line, max(width - 2, 20), subsequent_indent="  ") for line in _lines(rows))
    return "\n".join([_title(rows), *(f"  {line}" for line in chain.from_iterable(lines))])


def _marked(rows: Sequence[Row]) -> str:
    first, *rest = _lines(rows)
    return "\n".join([f"**{_title(rows)}**", "", first, "", *(f"- {line}" for line in rest)])


def _title(rows: Sequence[Row]) -> str:
    worst = rows[0]
    ranks = [row["rank"] for row in rows]
    where = f"{worst['run_id']} rank{'' if len(ranks) == 1 else 's'} {rank_list(ranks)}"
    return one_line(f"{worst['severity']}: {worst['rule']} ({worst['subject']}) in {where}")


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    """What is to be said: of several ranks the worst one's numbers."""
    worst = rows[0]
    yield one_line(worst["observation"])
    whose = f"rank {worst['rank']}, the worst: " if len(rows) > 1 else ""
    yield whose + _measured(worst)
    saves = "" if worst["saving_ns"] is None else f"saves at most {show(worst['saving_ns'], 'ns')}: "
    yield one_line(saves + worst["saving_limit"])
    yield one_line(f"confidence: {worst['confidence']}")
    yield one_line(f"try: {worst['advice']}")
    yield one_line(_look(worst))


def _measured(row: Row) -> str:
    """The share, the threshold, and what they are of."""
    steps = row["steps"]
    of = f"{count(steps)} complete step{'' if steps == 1 else 's'}" if steps else "no complete step"
    found = f" in {count(row['count'])} place{'' if row['count'] == 1 else 's'}" if row["count"] else ""
    limit = f"a finding from {show(row['threshold'], 'ratio')}"
    judged = f"judged by {show(row['analyzed_ns'], 'ns')}, {of}"
    return f"{show(row['share'], 'ratio')} ({limit}){found}; {judged}"


def _look(row: Row) -> str:
    """Where to look: the analysis, which of its rows, and the worst place."""
    look = f"look: tw show {row['evidence']} --run {quote(row['run_id'])} --rank {row['rank']}"
    if row["evidence_filter"] is not None:
        look += f", rows where {row['evidence_filter']}"
    if row["from_ns"] is not None:
        event = f", event {row['event_id']}" if row["event_id"] is not None else ""
        look += f"; worst at {row['from_ns']} ns for {show(row['to_ns'] - row['from_ns'], 'ns')}{event}"
    return look
