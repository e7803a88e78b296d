"""The section with the timeline of a run."""

from __future__ import annotations

from collections.abc import Iterator

from tracewarehouse.present.report.account import breakdown
from tracewarehouse.present.report.data import ReportData
from tracewarehouse.present.report.document import Section, TimelineView
from tracewarehouse.present.report.text import duration
from tracewarehouse.present.report.timeline import Timeline, timeline
from tracewarehouse.present.report.timeline_data import timeline_json
from tracewarehouse.present.report.verdict import finding_groups
from tracewarehouse.result import Result


def timeline_section(data: ReportData, findings: Result) -> Iterator[Section]:
    """The section; none if there is nothing to draw."""
    worst_first = [row for group in finding_groups(findings.rows()) for row in group]
    drawn = timeline(data, worst_first)
    if drawn is None:
        return
    what = "Recording" if drawn.step is None else f"Step {drawn.step}"
    title = "Timeline" if drawn.step is None else f"Timeline of step {drawn.step}"
    view = TimelineView(timeline_json(drawn), f"{what} of {data.run}", drawn.note)
    yield Section("timeline", title, _summary(data, drawn), timelines=(view,))


def _summary(data: ReportData, drawn: Timeline) -> str:
    length = duration(drawn.end_ns - drawn.start_ns)
    what = "The recording" if drawn.step is None else f"Step {drawn.step}"
    lanes = "threads" if breakdown(data) is None else "GPU time, streams and launching threads"
    ranks = "" if data.ranks == 1 else f" of {len(drawn.ranks)} ranks"
    text = f"{what}, {length}: {lanes}{ranks}."
    if drawn.bin_ns:
        text += f" Slices shorter than {duration(drawn.bin_ns)} are combined; their totals are exact."
    return text
