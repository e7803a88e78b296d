"""The page on one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tracewarehouse.plot.theme import brief
from tracewarehouse.report.comms import comms
from tracewarehouse.report.content import Tile
from tracewarehouse.report.data import Asked, asking
from tracewarehouse.report.document import Page
from tracewarehouse.report.findings import findings
from tracewarehouse.report.host import host
from tracewarehouse.report.kernels import kernels
from tracewarehouse.report.memory import memory, peak, where
from tracewarehouse.report.overview import kind, overview, shares, step_times
from tracewarehouse.report.run_facts import facts, quality, unknown
from tracewarehouse.report.wording import MEANINGS, part, plural, time
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import Selection
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.runs.rows import RunInfo

SECTIONS = (kernels, comms, memory, host, quality)


def one_run(side: Selection, info: RunInfo, found: Result, say: Callable[[str], None]) -> Page:
    """All of it, of one run with its findings; `say` is told of what is being worked out."""
    with asking(side) as asked:
        say("working out overview")
        sections = [overview(asked), findings(asked, found)]
        for make in SECTIONS:
            say(f"working out {make.__name__}")
            sections.append(make(asked))
        return Page(
            name=asked.run,
            title=asked.run,
            subtitle="What the GPUs did, what held them up, and what is not known",
            facts=facts(asked, info),
            tiles=tuple(_tiles(asked)),
            unknown=unknown(asked, info),
            sections=tuple(sections),
            made=f"Made by tracewarehouse {__version__} from {asked.selected.selector}.",
            meanings=tuple(name for name in MEANINGS if name in _used(asked)),
        )


def _tiles(asked: Asked) -> Iterator[Tile]:
    steps = step_times(asked)
    if steps is not None:
        yield Tile("median step", time(steps["median_ns"]), plural(steps["count"], kind(steps)))
    told = shares(asked)
    if told:
        whole = sum(told.values())
        idle = sum(ns for name, ns in told.items() if name.startswith("idle_"))
        yield Tile("GPU computing", part(told.get("compute", 0), whole), "of first to last work")
        if told.get("exposed_comm"):
            share = part(told["exposed_comm"], whole)
            yield Tile("exposed communication", share, "nothing computed meanwhile")
        yield Tile("GPU idle", part(idle, whole), "between first and last work")
    row = peak(asked)
    if row is not None:
        what = "above the start" if row["is_net"] else "allocated"
        yield Tile("memory peak", brief(row["peak"], "bytes"), f"{what}, {where(row)}")


def _used(asked: Asked) -> set[str]:
    """The meanings whose colours the page shows."""
    used = set(shares(asked))
    if (
        asked.has("comm_comp_overlap")
        and asked.one("SELECT sum(overlap_ns) AS ns FROM comm_comp_overlap")["ns"]
    ):
        used.add("hidden_comm")
    if asked.has("collective_waits"):
        used |= {"comm_wait", "exposed_comm"}
    return used
