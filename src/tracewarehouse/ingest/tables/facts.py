"""What a rank holds: counts, windows, and the facts that analyses need; and what an ingest sums up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .event_rules import non_events
from .model import LaunchState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..columns import Columns
    from ..rules import Rules
    from .model import Launches, Nesting, StepMarks

    Flags = NDArray[np.bool_]

_MODULE: Final = "nn.Module: "
# Annotations of a collective by a backend that runs on the host.
_HOST_COLLECTIVE: Final = r"^(gloo|mpi):\w"
_ANNOTATIONS: Final = ("user_annotation", "gpu_user_annotation")


@dataclass(frozen=True)
class Coverage:
    """Time of GPU activities: of all, of those that are linked to a launch, of those within an operator."""

    gpu_ns: int
    linked_ns: int
    with_op_ns: int


@dataclass(frozen=True)
class Held:
    """What the facts are made of, beside the activities: tables by what they say, not as a whole.

    `communicates` says that a GPU activity is communication. A rank without activities has a window from its
    memory timeline alone.
    """

    nesting: Nesting
    launches: Launches
    marks: StepMarks
    counters: bool
    memory_events: bool
    communicates: bool


def of_activities(columns: Columns, held: Held, rules: Rules) -> dict[str, Any]:
    """The facts of a rank with activities, but for those of its memory timeline."""
    device = _device(columns, held.launches)
    return {
        "pid": _process(columns, held.nesting),
        **_window(columns),
        **device,
        "events": columns.rows,
        "non_events": len(non_events(columns)),
        "steps": len(np.unique(held.marks.step)),
        "shapes": columns.has("shapes"),
        **_host(columns),
        "memory_events": held.memory_events,
        "collectives": held.communicates or _host_collectives(columns, rules),
        "counters": held.counters,
    }


def empty() -> dict[str, Any]:
    """The facts of a rank without activities."""
    nothing = dict.fromkeys(("pid", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns"))
    counts = dict.fromkeys(("events", "non_events", "gpu_rows", "steps"), 0)
    needs = ("gpu", "launches", "shapes", "stacks", "modules", "memory_events", "memory_timeline")
    more = ("collective_args", "collectives", "counters", "kernel_counters")
    return nothing | counts | dict.fromkeys((*needs, *more), False)


def of_timeline(timeline: pa.Table | None) -> dict[str, Any]:
    """What a memory timeline adds, or puts in the place of null and 0 where there are no activities."""
    if timeline is None or not timeline.num_rows:
        return {"memory_timeline": False}
    window = pc.min_max(timeline.column("ts_ns")).as_py()
    return {"memory_timeline": True, "start_ns": window["min"], "end_ns": window["max"],
            "events": timeline.num_rows}  # fmt: skip


def coverage(kernels: pa.Table) -> Coverage:
    """Time of the rows of `kernels`."""
    lengths = kernels.column("dur_ns")
    linked = pc.equal(kernels.column("launch_state"), "linked")
    with_op = pc.is_valid(kernels.column("op_id"))

    def total(which: pa.ChunkedArray | None) -> int:
        return pc.sum(lengths if which is None else lengths.filter(which)).as_py() or 0

    return Coverage(total(None), total(linked), total(with_op))


def _process(columns: Columns, nesting: Nesting) -> str | None:
    """The process that most host slices are of; of several the last by its text."""
    pid = columns.codes("pid")
    codes = pid.codes[nesting.rows]
    counts = np.bincount(codes[codes >= 0], minlength=len(pid.words))
    most = np.flatnonzero((counts == counts.max(initial=1)) & (counts > 0))
    words: list[str] = pid.words.take(pa.array(most)).to_pylist()
    return max(words, key=str.encode, default=None)


def _window(columns: Columns) -> dict[str, int | None]:
    """First start and last end of slices with usable times."""
    times, lengths = columns.ints("ts_ns"), columns.ints("dur_ns")
    timed = columns.codes("ph").is_one_of(["X", "B"]) & lengths.valid
    if not timed.any():
        return {"start_ns": None, "end_ns": None}
    starts = times.values[timed]
    return {"start_ns": int(starts.min()), "end_ns": int((starts + lengths.values[timed]).max())}


def _device(columns: Columns, launches: Launches) -> dict[str, Any]:
    rows = launches.rows
    ends = launches.ts_ns + columns.ints("dur_ns", rows).values
    return {
        "gpu_start_ns": int(launches.ts_ns.min()) if len(rows) else None,
        "gpu_end_ns": int(ends.max()) if len(rows) else None,
        "gpu_rows": len(rows),
        "gpu": bool(len(rows)),
        "launches": bool((launches.state == LaunchState.LINKED).any()),
        "collective_args": bool(columns.flags("has_collective", rows).any()),
    }


def _host(columns: Columns) -> dict[str, bool]:
    category, names = columns.codes("category"), columns.codes("name")
    frames = category.is_one_of(["python_function"])
    modules = pc.starts_with(names.words, _MODULE).to_numpy(zero_copy_only=False).astype(np.bool_)
    return {
        "stacks": bool(frames.any()),
        "modules": bool((frames & names.where(modules)).any()),
        "kernel_counters": bool(category.is_one_of(["cuda_profiler_range"]).any()),
    }


def _host_collectives(columns: Columns, rules: Rules) -> bool:
    """Whether an annotation with usable times is a collective of a host backend."""
    noted = columns.codes("category").is_one_of(_ANNOTATIONS) & columns.codes("ph").is_one_of(["X", "B"])
    names = columns.codes("name")
    codes = np.unique(names.codes[noted & columns.ints("dur_ns").valid])
    texts = names.words.take(pa.array(codes[codes >= 0])).to_pylist()
    return any(rules.matches(_HOST_COLLECTIVE, texts))
