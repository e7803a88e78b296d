"""`tw demo`: two simulated runs in a warehouse, and why the second is slower."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.session import Session, examples, output_options, pass_session
from tracewarehouse.location import Location
from tracewarehouse.present.render.table import table
from tracewarehouse.result import Field

if TYPE_CHECKING:
    from tracewarehouse.demo import Demo, KernelChange, Overview, Straggler


@click.command(
    epilog=examples(
        "tw demo",
        "tw demo -w /tmp/demo      # in a separate warehouse",
    )
)
@output_options
@pass_session
def demo(session: Session, /) -> None:
    """Try tw on two simulated runs.

    They are ingested as demo-before and demo-after; other runs in the warehouse are not changed. The second
    run contains injected faults.
    """
    from tracewarehouse.demo import demo as run_demo
    from tracewarehouse.present.render.progress import bars

    with bars() as progress:
        done = run_demo(session.open(), notify=session.out.notice, progress=progress)
    lines = commands(done, _warehouse_option(session.warehouse))
    session.out.print_text(text(done, str(session.warehouse), lines), [_row(done, lines)])


def _warehouse_option(warehouse: Location) -> str:
    """The option that selects the warehouse; empty if it is the default one."""
    default = os.environ.get("TW_WAREHOUSE", "warehouse")
    return "" if str(warehouse) == str(Path(default)) else f" -w {shlex.quote(str(warehouse))}"


def _row(done: Demo, lines: list[str]) -> dict[str, object]:
    return {
        "runs": [{**asdict(run), "shares": run.shares} for run in done.runs],
        "kernels": [asdict(each) for each in done.kernels],
        "stragglers": [asdict(each) for each in done.stragglers],
        "ingested": done.ingested,
        "next": lines,
    }


_WIDTH = 78  # 80 without the indent
_KERNELS = 3
_CATEGORIES = {
    "compute_ns": "compute",
    "exposed_comm_ns": "exposed comm",
    "exposed_memory_ns": "exposed mem",
    "idle_ns": "idle",
}
_MAIN_CATEGORIES = ("compute_ns", "exposed_comm_ns")


def text(done: Demo, warehouse: str, lines: Sequence[str]) -> str:
    """The complete text: the runs, their time breakdown, the differences, commands to try."""
    before, after = done.runs
    sections = [
        _intro(done, warehouse),
        _section("GPU time of all ranks", _overview(done.runs)),
        _section("Step time", _step(before, after)),
        _section("Kernels that changed most (time per step, median rank)", _kernels(done)),
        _section("Stragglers (times per step)", _stragglers(done)),
        _section("Try next", lines),
    ]
    return "\n\n".join(sections) + "\n"


def commands(done: Demo, option: str) -> list[str]:
    """Shell commands that show the data behind the numbers."""
    before, after = (run.run for run in done.runs)
    rank = done.stragglers[1].rank
    return [
        f"tw check {after}{option}",
        f"tw report {before} {after}{option}",
        f"tw show temporal_breakdown --run {after}{option}",
        f"tw show kernel_summary --run {after} --rank {rank} --limit 5{option}",
        f"tw show stragglers --run {after}{option}",
        f'tw query "SELECT kind, count(*) FROM kernels GROUP BY kind"{option}',
        f"tw list{option}",
        f"tw remove {before} {after}{option}",
    ]


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _intro(done: Demo, warehouse: str) -> str:
    before, after = done.runs
    runs = f"two simulated runs of {after.ranks} ranks"
    state = f"Ingested {runs} into {warehouse}:" if done.ingested else f"{warehouse} already has {runs}:"
    return (
        f"{state}\n{before.run} and {after.run}. The second one contains injected faults;\n"
        "the analyses below find them."
    )


def _overview(runs: Sequence[Overview]) -> list[str]:
    fields = [Field("run", "VARCHAR"), Field("steps", "BIGINT", "count"), Field("median step", "DOUBLE")]
    fields += [Field(name, "DOUBLE", "ratio") for name in _CATEGORIES.values()]
    rows = [
        (run.run, run.steps, _ms(run.step_ns), *(run.shares[name] for name in _CATEGORIES)) for run in runs
    ]
    return table(fields, rows).lines()


def _step(before: Overview, after: Overview) -> list[str]:
    old, new = before.mean_parts_ns, after.mean_parts_ns
    change = {name: new[name] - old[name] for name in new}
    other = sum(ns for name, ns in change.items() if name not in _MAIN_CATEGORIES)
    parts = [f"{_CATEGORIES[name]} {_ms(change[name], sign='+')}" for name in _MAIN_CATEGORIES]
    return [
        f"{_ms(before.step_ns)} before, {_ms(after.step_ns)} after: "
        f"{_ms(after.step_ns - before.step_ns, sign='+')} ({_percent(before.step_ns, after.step_ns):+.1f} %)",
        f"mean change: {', '.join(parts)}, other {_ms(other, sign='+')}",
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
    names = ("mean wait", "rank", "last at", "share of wait", "compute", "median rank")
    rows = [
        (run.run, _ms(each.waiting_ns), each.rank, f"{each.last_at} of {each.collectives}")
        + (f"{100 * each.share:.1f} %", _ms(each.compute_ns), _ms(each.median_compute_ns))
        for run, each in zip(done.runs, done.stragglers, strict=True)
    ]
    fields = [Field("run", "VARCHAR"), *(Field(name, "DOUBLE") for name in names)]
    return [*table(fields, rows).lines(), *_straggler_sentence(done.runs[1].run, done.stragglers[1])]


def _straggler_sentence(run: str, rank: Straggler) -> list[str]:
    if rank.share <= 0.5:
        return []
    slower = _percent(rank.median_compute_ns, rank.compute_ns)
    return [
        f"Rank {rank.rank} is the straggler in {run}: its computation takes {slower:.1f} % longer",
        "than the median rank's.",
    ]


def _percent(before: float, after: float) -> float:
    return 100 * (after - before) / before


def _ms(ns: float | None, sign: str = "") -> str:
    """A time in ms: one unit for all rows."""
    return "-" if ns is None else f"{ns / 1e6:{sign}z.3f} ms"
