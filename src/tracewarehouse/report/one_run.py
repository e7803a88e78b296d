"""The report of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tracewarehouse.display_names import CATEGORIES
from tracewarehouse.plot.theme import format_short
from tracewarehouse.render.text import plural
from tracewarehouse.report.communication import communication_section
from tracewarehouse.report.data import ReportData, report_data
from tracewarehouse.report.document import Page, Section, Tile
from tracewarehouse.report.findings import findings_section
from tracewarehouse.report.host import host_section
from tracewarehouse.report.kernels import kernels_section
from tracewarehouse.report.memory import device_label, memory_section, peak_memory
from tracewarehouse.report.overview import (
    idle_times,
    overview_section,
    step_kind,
    step_times,
    time_by_category,
)
from tracewarehouse.report.run_facts import limits_section, quality_section, run_facts
from tracewarehouse.report.text import duration, percent
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import Selection
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.runs.rows import RunInfo

_SECTIONS: dict[str, Callable[[ReportData], Section]] = {
    "kernels": kernels_section,
    "communication": communication_section,
    "memory": memory_section,
    "host": host_section,
    "data quality": quality_section,
}


def one_run(side: Selection, info: RunInfo, findings: Result, notify: Callable[[str], None]) -> Page:
    """The report of a run with its findings; `notify` receives progress messages."""
    with report_data(side) as data:
        notify("computing overview")
        sections = [overview_section(data), findings_section(data, findings)]
        for name, build in _SECTIONS.items():
            notify(f"computing {name}")
            sections.append(build(data))
        used = _used_categories(data)
        return Page(
            name=data.run,
            title=data.run,
            subtitle="Where GPU time went and what limits it",
            facts=run_facts(data, info),
            tiles=tuple(_tiles(data)),
            sections=(*sections, limits_section(data, info)),
            footer=f"tracewarehouse {__version__}, {data.selected.selector}",
            legend=tuple(name for name in CATEGORIES if name in used),
        )


def _tiles(data: ReportData) -> Iterator[Tile]:
    steps = step_times(data)
    if steps is not None:
        yield Tile("median step", duration(steps["median_ns"]), plural(steps["count"], step_kind(steps)))
    times = time_by_category(data)
    if times:
        total = sum(times.values())
        yield Tile("GPU computation", percent(times.get("compute", 0), total), "of the GPU window")
        if times.get("exposed_comm"):
            share = percent(times["exposed_comm"], total)
            yield Tile("exposed communication", share, "not overlapped with computation")
        yield Tile("GPU idle", percent(sum(idle_times(times).values()), total), "of the GPU window")
    peak = peak_memory(data)
    if peak is not None:
        baseline = "above its initial level" if peak["is_net"] else "allocated"
        yield Tile("memory peak", format_short(peak["peak"], "bytes"), f"{baseline}, {device_label(peak)}")


def _used_categories(data: ReportData) -> set[str]:
    """The categories whose colors the page uses."""
    used = set(time_by_category(data))
    if (
        data.has_rows("comm_comp_overlap")
        and data.row("SELECT sum(overlap_ns) AS ns FROM comm_comp_overlap")["ns"]
    ):
        used.add("hidden_comm")
    if data.has_rows("collective_waits"):
        used |= {"comm_wait", "exposed_comm"}
    return used
