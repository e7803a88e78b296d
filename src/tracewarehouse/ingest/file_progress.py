"""The progress of an ingest by file, from that of its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tracewarehouse.engines import Failure, OnProgress
from tracewarehouse.ingest.build_rank import BUILDING
from tracewarehouse.ingest.build_task import BuildRanks
from tracewarehouse.ingest.outcome import Progress, Watch
from tracewarehouse.ingest.plan import Item, ReadSource, Report, UnreadSource


@dataclass
class FileProgress:
    """Translates the progress of tasks to that of files."""

    watch: Watch
    done: dict[int, int] = field(default_factory=dict)

    def of(self, tasks: Sequence[BuildRanks]) -> OnProgress:
        """The callback for the progress of these tasks."""

        def on_progress(task: int, position: int, done_bytes: int) -> None:
            self._report(tasks[task].items[position], done_bytes)

        return on_progress

    def _report(self, one: Item, done_bytes: int) -> None:
        before = self.done.get(one.number, 0)
        if done_bytes == BUILDING:
            self.watch(Progress(one.path, "tables", before, before))
        else:
            self.done[one.number] = done = max(before, done_bytes)
            self.watch(Progress(one.path, "read", done, max(done, one.text_bytes)))

    def finished(self, task: BuildRanks, found: object) -> Iterator[Report]:
        """The reports of a finished task."""
        for position, one in enumerate(task.items):
            if isinstance(found, Failure):
                report: Report = UnreadSource(one.number, "failed", found)
            else:
                report = found[position]  # type: ignore[index]
            read_bytes = report.text_bytes if isinstance(report, ReadSource) else one.text_bytes
            total = max(1, self.done.get(one.number, 0), read_bytes)
            self.watch(Progress(one.path, "done", total, total))
            yield report
