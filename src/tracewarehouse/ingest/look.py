"""The first look at each file: is it a trace, is it finished, and what does it say of itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewarehouse.ingest import inbox
from tracewarehouse.ingest.discover import Candidate
from tracewarehouse.ingest.facts import header_of, rank_of, world_size_of
from tracewarehouse.ingest.naming import TraceFile
from tracewarehouse.ingest.outcome import FileOutcome, Options, Progress, Watch
from tracewarehouse.ingest.pool import Failure, Workers
from tracewarehouse.ingest.worker import Look, mark

if TYPE_CHECKING:
    from tracewarehouse.reader import Survey

_FORMAT_NAMES = {
    "execution_trace": "a PyTorch execution trace",
    "memory_timeline": "a PyTorch memory timeline",
    "memory_timeline_raw": "a PyTorch memory timeline: name it, and it becomes a run of its own",
    "memory_snapshot": "a CUDA memory snapshot",
    "nsys_sqlite": "an Nsight Systems export",
    "rocprofv3": "a rocprofv3 result",
    "no_events": "JSON without trace events",
}
TRACES = "traces are Chrome JSON with a list of events: torch.profiler's export_chrome_trace writes them"


@dataclass(frozen=True)
class Trace:
    """A surveyed trace. `mark` is size and time of change from before the survey."""

    file: TraceFile
    survey: Survey
    mark: tuple[int, int]
    dropped: inbox.Dropped | None


def look(
    workers: Workers, files: Sequence[Candidate], salt: bytes, options: Options, watch: Watch
) -> tuple[list[Trace], list[FileOutcome]]:
    """The traces among the files, and what becomes of the others."""
    marks = [mark(one.path) for one in files]
    traces: list[Trace] = []
    others: list[FileOutcome] = []

    def told(index: int, done: int, total: int) -> None:
        watch(Progress(files[index].path, "survey", done, total))

    for index, found in workers.run([Look(one.path, salt) for one in files], told):
        one = _judge(files[index], found, marks[index], options)
        if isinstance(one, Trace):
            traces.append(one)
        else:
            others.append(one)
    return sorted(traces, key=lambda one: one.file.path), others


def _judge(file: Candidate, found: object, before: tuple[int, int], options: Options) -> Trace | FileOutcome:
    path = file.path
    if options.inbox and not path.exists():
        return FileOutcome(path, "skipped", reason="another ingest took it in")
    if mark(path) != before:
        return FileOutcome(path, "pending", reason="is still being written", hint="ingest it again later")
    if isinstance(found, Failure):
        reason = found.message.removeprefix(f"{path}: ")
        return FileOutcome(path, "refused", reason=reason, hint=found.hint, details=found.details)
    survey: Survey = found  # type: ignore[assignment]
    # Beside traces a timeline would split their run by names of files: it is taken where it is named.
    if survey.format != "kineto" and not (file.named and survey.format == "memory_timeline_raw"):
        return _other_format(file, survey.format)
    if _may_be_unfinished(survey, before, options.settle_s):
        reason = f"ends in mid-trace and was written to less than {options.settle_s:g} s ago"
        return FileOutcome(path, "pending", reason=reason, hint="ingest it again later, or with --settle 0")
    return _trace(file, survey, before, options)


def _other_format(file: Candidate, format_: str) -> FileOutcome:
    reason = f"is {_FORMAT_NAMES.get(format_, f'of format {format_}')}"
    if not file.named:
        return FileOutcome(file.path, "skipped", reason=reason)
    return FileOutcome(file.path, "refused", reason=f"{reason}, not a Kineto trace", hint=TRACES)


def _may_be_unfinished(survey: Survey, before: tuple[int, int], settle_s: float) -> bool:
    """Cut short, and so fresh that its writer may not be done."""
    cut_short = any(loss.byte_to >= survey.text_bytes for loss in survey.losses)
    return cut_short and time.time() - before[1] / 1e9 < settle_s


def _trace(file: Candidate, survey: Survey, before: tuple[int, int], options: Options) -> Trace:
    header = header_of(survey.header_json)
    dropped = inbox.dropped(file.path) if options.inbox else None
    world_size = world_size_of(header)
    named = TraceFile(
        file.path,
        survey.digest,
        rank_of(header),
        world_size if world_size is not None or dropped is None else dropped.world_size,
        survey.status == "damaged",
        dropped.run if dropped else None,
        dropped.span if dropped else None,
    )
    return Trace(named, survey, before, dropped)
