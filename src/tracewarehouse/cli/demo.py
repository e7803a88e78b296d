"""`tw demo`: a first look without any trace."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.session import Session, examples, output_options, pass_session
from tracewarehouse.render.table import table
from tracewarehouse.result import Field

if TYPE_CHECKING:
    from tracewarehouse.demo import Demo, KernelChange, Overview, Straggler


@click.command(
    epilog=examples(
        "tw demo",
        "tw demo -w /tmp/look      # in a warehouse of its own",
    )
)
@output_options
@pass_session
def demo(session: Session, /) -> None:
    """Take a first look without any trace: two simulated runs, and what differs between them.

    The runs go into the warehouse as demo-before and demo-after; whatever else is there stays as it is.
    """
    from tracewarehouse.demo import demo as show
    from tracewarehouse.render.progress import bars

    with bars() as progress:
        done = show(session.open(), say=session.out.notice, progress=progress)
    lines = commands(done, _where(session.warehouse))
    session.out.say(told(done, str(session.warehouse), lines), [_row(done, lines)])


def _where(warehouse: Path) -> str:
    """What a command needs to find the warehouse: nothing where it would look there anyway."""
    usual = Path(os.environ.get("TW_WAREHOUSE", "warehouse"))
    return "" if warehouse == usual else f" -w {shlex.quote(str(warehouse))}"


def _row(done: Demo, lines: list[str]) -> dict[str, object]:
    return {
        "runs": [{**asdict(run), "shares": run.shares} for run in done.runs],
        "kernels": [asdict(each) for each in done.kernels],
        "stragglers": [asdict(each) for each in done.stragglers],
        "taken_in": done.taken_in,
        "next": lines,
    }


_WIDTH = 78  # 80 without the indent
_KERNELS = 3
_PARTS = {
    "compute_ns": "compute",
    "exposed_comm_ns": "exposed comm",
    "exposed_memory_ns": "exposed mem",
    "idle_ns": "idle",
}
_TOLD_APART = ("compute_ns", "exposed_comm_ns")


def told(done: Demo, place: str, lines: Sequence[str]) -> str:
    """All of it: where the runs are, where their time goes, what differs, what to try."""
    before, after = done.runs
    parts = [
        _intro(done, place),
        _section("Where the time goes, on all ranks", _overview(done.runs)),
        _section("Step", _step(before, after)),
        _section("Kernels that changed most: per step, on the median rank", _kernels(done)),
        _section("Who the others wait for at collectives; times per step", _stragglers(done)),
        _section("Try next", lines),
    ]
    return "\n\n".join(parts) + "\n"


def commands(done: Demo, where: str) -> list[str]:
    """Lines for the shell that show where the numbers come from."""
    before, after = (run.run for run in done.runs)
    rank = done.stragglers[1].rank
    return [
        f"tw check {after}{where}",
        f"tw report {before} {after}{where}",
        f"tw show temporal_breakdown --run {after}{where}",
        f"tw show kernel_summary --run {after} --rank {rank} --head 5{where}",
        f"tw show stragglers --run {after}{where}",
        f'tw query "SELECT kind, count(*) FROM kernels GROUP BY kind"{where}',
        f"tw list{where}",
        f"tw remove {before} {after}{where}",
    ]


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _intro(done: Demo, place: str) -> str:
    before, after = done.runs
    state = "Taken in" if done.taken_in else "There already"
    return (
        f"{state}: {before.run} and {after.run}, two simulated runs of {after.ranks} ranks,\n"
        f"in {place}. The second has faults planted in it; here is what the traces say."
    )


def _overview(runs: Sequence[Overview]) -> list[str]:
    fields = [Field("run", "VARCHAR"), Field("steps", "BIGINT", "count"), Field("median step", "DOUBLE")]
    fields += [Field(name, "DOUBLE", "ratio") for name in _PARTS.values()]
    rows = [(run.run, run.steps, _ms(run.step_ns), *(run.shares[part] for part in _PARTS)) for run in runs]
    return table(fields, rows).lines()


def _step(before: Overview, after: Overview) -> list[str]:
    old, new = before.mean_parts_ns, after.mean_parts_ns
    change = {part: new[part] - old[part] for part in new}
    rest = sum(ns for part, ns in change.items() if part not in _TOLD_APART)
    parts = [f"{_PARTS[part]} {_ms(change[part], sign='+')}" for part in _TOLD_APART]
    return [
        f"{_ms(before.step_ns)} before, {_ms(after.step_ns)} after: "
        f"{_ms(after.step_ns - before.step_ns, sign='+')} ({_percent(before.step_ns, after.step_ns):+.1f} %)",
        f"mean parts: {', '.join(parts)}, the rest {_ms(rest, sign='+')}",
    ]


def _kernels(done: Demo) -> list[str]:
    fields = [Field("kernel", "VARCHAR"), *(Field(name, "DOUBLE") for name in ("before", "after", "change"))]
    rows = [
        (each.name, _ms(each.before_ns), _ms(each.after_ns), _change(each))
        for each in done.kernels[:_KERNELS]
    ]
    return table(fields, rows, width=_WIDTH).lines()


def _change(each: KernelChange) -> str:
    if each.before_ns is None or each.after_ns is None:
        return "added" if each.before_ns is None else "removed"
    return f"{_percent(each.before_ns, each.after_ns):+.1f} %"


def _stragglers(done: Demo) -> list[str]:
    names = ("waiting", "for rank", "came last", "causes", "computes", "median rank")
    rows = [
        (run.run, _ms(each.waiting_ns), each.rank, f"{each.last_at} of {each.collectives}")
        + (f"{100 * each.share:.1f} %", _ms(each.compute_ns), _ms(each.median_compute_ns))
        for run, each in zip(done.runs, done.stragglers, strict=True)
    ]
    fields = [Field("run", "VARCHAR"), *(Field(name, "DOUBLE") for name in names)]
    return [*table(fields, rows).lines(), *_waited_for(done.runs[1].run, done.stragglers[1])]


def _waited_for(run: str, rank: Straggler) -> list[str]:
    if rank.share <= 0.5:
        return []
    slower = _percent(rank.median_compute_ns, rank.compute_ns)
    return [
        f"In {run} the others wait for rank {rank.rank}: its computation takes",
        f"{slower:.1f} % longer than the median rank's.",
    ]


def _percent(before: float, after: float) -> float:
    return 100 * (after - before) / before


def _ms(ns: float | None, sign: str = "") -> str:
    """One unit for all, so that they compare at a glance."""
    return "-" if ns is None else f"{ns / 1e6:{sign}z.3f} ms"
