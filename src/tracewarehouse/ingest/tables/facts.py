"""What a rank holds: counts, windows, and the facts that analyses need; and what an ingest sums up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.event_rules import no_changes, non_events, total_ns
from tracewarehouse.ingest.tables.model import LaunchState
from tracewarehouse.ingest.tables.rows import slabs, slices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Launches, Nesting, Owners, StepMarks

    Flags = NDArray[np.bool_]

# What analyses may need of a rank, but for what its header says.
_NEEDS: Final = (
    "gpu", "launches", "shapes", "stacks", "modules", "memory_events", "memory_timeline", "collective_args",
    "collectives", "counters", "kernel_counters",
)  # fmt: skip
_MODULE: Final = "nn.Module: "
# Annotations of a collective by a backend that runs on the host.
_HOST_COLLECTIVE: Final = r"^(gloo|mpi):\w"
_COPIES: Final = ("gpu_memcpy", "gpu_memset")
_ANNOTATIONS: Final = ("user_annotation", "gpu_user_annotation")


@dataclass(frozen=True)
class Coverage:
    """Time of GPU activities: of all, of those that are linked to a launch, of those within an operator."""

    gpu_ns: int = 0
    launch_known_ns: int = 0
    with_op_ns: int = 0


@dataclass(frozen=True)
class Held:
    """What the facts are made of, beside the activities; of some tables only whether they have rows."""

    nesting: Nesting
    launches: Launches
    marks: StepMarks
    counters: bool
    memory_events: bool


def of_rank(told: Mapping[str, Any], timeline: pa.Table | None, base_time_ns: int) -> dict[str, Any]:
    """All facts of a rank: what its activities tell, else its memory timeline."""
    nothing = dict.fromkeys(("pid", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns"))
    counts = dict.fromkeys(("events", "non_events", "gpu_activities", "steps"), 0)
    needs = dict.fromkeys(_NEEDS, False)
    found = {name: value for name, value in told.items() if value is not None}
    return {"base_time_ns": base_time_ns, **nothing, **counts, **needs, **_of_timeline(timeline), **found}


def of_activities(columns: Columns, held: Held, rules: Rules) -> dict[str, Any]:
    """The facts that activities tell."""
    return {
        "pid": _process(columns, held.nesting),
        **_window(columns),
        **_device(columns, held.launches),
        "events": columns.rows,
        "non_events": len(non_events(columns)),
        "steps": len(np.unique(held.marks.step)),
        "shapes": columns.has("shapes"),
        **_host(columns),
        "memory_events": held.memory_events,
        "collectives": _communicates(columns, held.launches, rules) or _host_collectives(columns, rules),
        "counters": held.counters,
    }


def coverage(columns: Columns, launches: Launches, owners: Owners) -> Coverage:
    """Time of all GPU activities together."""
    lengths = columns.ints("dur_ns", launches.rows).values
    linked = launches.runtime >= 0
    call = np.searchsorted(owners.calls, launches.runtime[linked])
    return Coverage(
        total_ns(lengths), total_ns(lengths[linked]), total_ns(lengths[linked][owners.op[call] >= 0])
    )


def _of_timeline(timeline: pa.Table | None) -> dict[str, Any]:
    """What a memory timeline says of a rank without activities; and that there is one."""
    if timeline is None:
        return {}
    window = pc.min_max(timeline.column("ts_ns")).as_py()
    odd = len(no_changes(timeline))
    return {"memory_timeline": odd < timeline.num_rows, "start_ns": window["min"], "end_ns": window["max"],
            "events": timeline.num_rows, "non_events": odd}  # fmt: skip


def _process(columns: Columns, nesting: Nesting) -> str | None:
    """The process that most host slices are of; of several the last by its text."""
    words = columns.words("pid")
    counts = np.zeros(len(words) + 1, np.int64)
    for part in slabs(len(nesting.rows)):
        counts += np.bincount(columns.codes("pid", nesting.rows[part]).codes + 1, minlength=len(counts))
    counts = counts[1:]
    most = np.flatnonzero(counts == counts.max(initial=1))
    texts: list[str] = words.take(pa.array(most)).to_pylist()
    return max(texts, key=str.encode, default=None)


def _window(columns: Columns) -> dict[str, int | None]:
    """First start and last end of slices with usable times."""
    first, last = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    timed = slices(columns)
    if not timed.any():
        return {"start_ns": None, "end_ns": None}
    for part in slabs(columns.rows):
        starts = columns.ints("ts_ns", part).values[timed[part]]
        ends = starts + columns.ints("dur_ns", part).values[timed[part]]
        first, last = min(first, int(starts.min(initial=first))), max(last, int(ends.max(initial=last)))
    return {"start_ns": first, "end_ns": last}


def _device(columns: Columns, launches: Launches) -> dict[str, Any]:
    rows = launches.rows
    ends = launches.ts_ns + columns.ints("dur_ns", rows).values
    return {
        "gpu_start_ns": int(launches.ts_ns.min()) if len(rows) else None,
        "gpu_end_ns": int(ends.max()) if len(rows) else None,
        "gpu_activities": len(rows),
        "gpu": bool(len(rows)),
        "launches": bool((launches.state == LaunchState.KNOWN).any()),
        "collective_args": bool(columns.flags("has_collective", rows).any()),
    }


def _host(columns: Columns) -> dict[str, bool]:
    frames = columns.is_one_of("category", ["python_function"])
    modules = pc.starts_with(columns.words("name"), _MODULE).to_numpy(zero_copy_only=False).astype(np.bool_)
    return {
        "stacks": bool(frames.any()),
        "modules": bool((frames & columns.where("name", modules)).any()),
        "kernel_counters": bool(columns.is_one_of("category", ["cuda_profiler_range"]).any()),
    }


def _communicates(columns: Columns, launches: Launches, rules: Rules) -> bool:
    """Whether a GPU activity is communication: by the arguments of a collective, or by its name."""
    rows = launches.rows[~columns.is_one_of("category", _COPIES, launches.rows)]
    category, names = columns.codes("category", rows), columns.codes("name", rows)
    if columns.flags("has_collective", rows).any():
        return True
    for code in np.flatnonzero(np.bincount(category.codes, minlength=len(category.words))):
        of_category = names.codes[category.codes == code]
        used = np.flatnonzero(np.bincount(of_category + 1, minlength=len(names.words) + 1)[1:])
        word = category.words[int(code)].as_py()
        pairs = [(word, name) for name in names.words.take(pa.array(used)).to_pylist()]
        if any(kind == "communication" for _, kind, _ in rules.device_kinds(pairs)):
            return True
    return False


def _host_collectives(columns: Columns, rules: Rules) -> bool:
    """Whether an annotation with usable times is a collective of a host backend."""
    noted = np.flatnonzero(columns.is_one_of("category", _ANNOTATIONS) & slices(columns))
    names = columns.codes("name", noted)
    codes = np.unique(names.codes)
    texts = names.words.take(pa.array(codes[codes >= 0])).to_pylist()
    return any(rules.matches(_HOST_COLLECTIVE, texts))
