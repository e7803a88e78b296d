"""The report of one run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tracewarehouse.display_names import CATEGORIES
from tracewarehouse.present.report.communication import communication_section
from tracewarehouse.present.report.data import ReportData, breakdown, report_data
from tracewarehouse.present.report.document import Page, Section
from tracewarehouse.present.report.findings import (
    finding_groups,
    findings_section,
    flight_section,
    run_verdict,
)
from tracewarehouse.present.report.host import (
    graphs_section,
    host_section,
    inference_section,
    inference_tiles,
)
from tracewarehouse.present.report.kernels import kernels_section, modules_sections, work_section
from tracewarehouse.present.report.memory import memory_section, snapshot_section
from tracewarehouse.present.report.overview import (
    limits_section,
    overview_section,
    quality_section,
    run_facts,
    run_line,
    run_tiles,
)
from tracewarehouse.present.report.timeline import timeline_section
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Result
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.runs.rows import RunInfo

_SECTIONS: dict[str, Callable[[ReportData], Section]] = {
    "kernels": kernels_section,
    "work": work_section,
    "communication": communication_section,
    "memory": memory_section,
}


def one_run(side: Selection, info: RunInfo, findings: Result, notify: Callable[[str], None]) -> Page:
    """The report of a run with its findings; `notify` receives progress messages."""
    with report_data(side) as data:
        notify("computing overview")
        sections = [
            *timeline_section(data, findings),
            findings_section(data, findings),
            *snapshot_section(data),
            *flight_section(data),
            overview_section(data),
            *inference_section(data),
            *graphs_section(data),
        ]
        ranks = [row["rank"] for group in finding_groups(findings.rows()) for row in group]
        parts: dict[str, Callable[[ReportData], Section]] = {
            **_SECTIONS,
            "host": partial(host_section, rank=next(iter(ranks), None)),
            "data quality": quality_section,
        }
        for name, build in parts.items():
            notify(f"computing {name}")
            sections.append(build(data))
            if name == "kernels":
                sections += modules_sections(data)
        used = _used_categories(data)
        return Page(
            name=data.run,
            title=data.run,
            subtitle=run_line(data, info),
            facts=run_facts(data, info),
            verdict=run_verdict(data, findings),
            tiles=(*inference_tiles(data), *run_tiles(data)),
            sections=(*sections, limits_section(data, info)),
            footer=f"tracewarehouse {__version__}, {data.selected.selector}",
            legend=tuple(name for name in CATEGORIES if name in used),
        )


def _used_categories(data: ReportData) -> set[str]:
    """The categories whose colors the page uses."""
    account = breakdown(data)
    used = set(account.times) if account else set()
    if data.has_rows("comm_comp_overlap"):
        total = data.row(
            "SELECT sum(exposed_ns) AS exposed_comm, sum(overlap_ns) AS hidden_comm FROM comm_comp_overlap"
        )
        used |= {name for name, ns in total.items() if ns}
    if data.has_rows("collective_waits"):
        used |= {"comm_wait", "exposed_transfer"}
    return used
