"""A median step of each of two runs: timelines on one scale, and what the training threads run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracewarehouse.present.report.data import ReportData, report_data
from tracewarehouse.present.report.document import Section, TimelineView
from tracewarehouse.present.report.flame import flame_view
from tracewarehouse.present.report.text import duration
from tracewarehouse.present.report.timeline import timeline
from tracewarehouse.present.report.timeline_data import timeline_json
from tracewarehouse.runs.selection import RankSelection


def median_steps(runs: Sequence[RankSelection]) -> tuple[list[Section], list[Section]]:
    """A median step of each side: its timeline, on one scale, and what the training thread runs in it."""
    views, flames = [], []
    for side in runs:
        with report_data(side) as data:
            views.append(_timeline_view(data))
            flames.append(flame_view(data, None))
    drawn = [view for view in views if view is not None]
    stacks = tuple(
        replace(view, label=f"{name}: {view.label}")
        for name, view in zip(("Base", "Head"), flames, strict=False)
        if view is not None
    )
    both = "Base above, head below"
    timelines = Section("timeline", "Timelines", f"{both}, on one scale; both move together.")
    host = Section("host", "Host", f"{both}: host time of a median step as stacks, each on its own scale.")
    return (
        [replace(timelines, timelines=tuple(drawn))] if len(drawn) == len(runs) else [],
        [replace(host, flames=stacks)] if stacks else [],
    )


def _timeline_view(data: ReportData) -> TimelineView | None:
    drawn = timeline(data, [])
    if drawn is None:
        return None
    what = "the recording" if drawn.step is None else f"median step {drawn.step}"
    note = f"{data.run}: {what}, {duration(drawn.end_ns - drawn.start_ns)}. {drawn.note}"
    return TimelineView(timeline_json(drawn), f"{data.run}, {what}", note)
