"""Facts of a rank: counts, profiling windows, capabilities that analyses require, and launch coverage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.model import MODULE_FRAME, LaunchState
from tracewarehouse.ingest.tables.quality import exact_sum, invalid_timeline_rows, non_events
from tracewarehouse.ingest.tables.rows import is_slice, slabs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Attribution, Launches, Nesting, StepAnnotations

    Flags = NDArray[np.bool_]


# Capabilities that analyses may require, without those that the header determines.
_NEEDS: Final = (
    "gpu", "launches", "shapes", "stacks", "modules", "memory_events", "memory_timeline", "collective_args",
    "collectives", "counters", "kernel_counters", "gpu_metrics", "snapshot", "flight_records",
    "kernel_metrics", "execution_nodes",
)  # fmt: skip
# Need → the table of a file that adds to a rank, its column of times if any, and its other tables.
ADDITIONS: Final[dict[str, tuple[str, str | None, tuple[str, ...]]]] = {
    "snapshot": ("snapshot_events", "ts_ns", ("snapshot_segments", "snapshot_blocks", "snapshot_frames")),
    "flight_records": ("flight_records", "created_ns", ()),
    "kernel_metrics": ("kernel_metrics", None, ()),
    "execution_nodes": ("execution_nodes", None, ()),
}
ADDED_TABLES: Final = tuple(name for table, _, others in ADDITIONS.values() for name in (table, *others))
_NO_TABLES: Final[dict[str, Any]] = {}
# Annotations of collectives of backends that run on the host.
_HOST_COLLECTIVE: Final = r"^(gloo|mpi):\w"
_COPIES: Final = ("gpu_memcpy", "gpu_memset")
_ANNOTATIONS: Final = ("user_annotation", "gpu_user_annotation")


@dataclass(frozen=True)
class Coverage:
    """GPU time: in total, with a known launch, and with a known operator."""

    gpu_ns: int = 0
    launch_known_ns: int = 0
    with_op_ns: int = 0


@dataclass(frozen=True)
class RankContents:
    """What facts are computed from beside the activities; for some tables only whether they have rows."""

    nesting: Nesting
    launches: Launches
    step_annotations: StepAnnotations
    counters: bool
    gpu_metrics: bool
    memory_events: bool


def rank_facts(
    from_activities: Mapping[str, Any],
    timeline: pa.Table | None,
    base_time_ns: int,
    additions: Mapping[str, pa.Table] = _NO_TABLES,
) -> dict[str, Any]:
    """All facts of a rank: from its activities, else from its memory timeline or from what adds to a rank."""
    nothing = dict.fromkeys(("pid", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns"))
    counts = dict.fromkeys(("events", "non_events", "gpu_activities", "steps"), 0)
    needs = dict.fromkeys(_NEEDS, False)
    found = {name: value for name, value in from_activities.items() if value is not None}
    return {
        "base_time_ns": base_time_ns,
        **nothing,
        **counts,
        **needs,
        **_of_timeline(timeline),
        **_of_additions(additions),
        **found,
    }


def activity_facts(columns: Columns, contents: RankContents, rules: Rules) -> dict[str, Any]:
    """The facts that follow from the activities."""
    return {
        "pid": _process(columns, contents.nesting),
        **_window(columns),
        **_device(columns, contents.launches),
        "events": columns.rows,
        "non_events": len(non_events(columns)),
        "steps": len(np.unique(contents.step_annotations.step)),
        "shapes": columns.has("shapes"),
        **_host(columns),
        "memory_events": contents.memory_events,
        "collectives": _communicates(columns, contents.launches, rules) or _host_collectives(columns, rules),
        "counters": contents.counters,
        "gpu_metrics": contents.gpu_metrics,
    }


def coverage(columns: Columns, launches: Launches, attribution: Attribution) -> Coverage:
    """Coverage of all GPU activities, in summed time.

    An operator around a graph launch with several activities encloses only the launch, so it does not count.
    """
    lengths = columns.ints("dur_ns", launches.rows).values
    linked = launches.runtime >= 0
    call = np.searchsorted(attribution.calls, launches.runtime[linked])
    has_op = attribution.op[call] >= 0
    in_graph = launches.is_graph[linked]
    if in_graph.any():
        has_op &= ~(in_graph & (np.bincount(call)[call] > 1))
    return Coverage(exact_sum(lengths), exact_sum(lengths[linked]), exact_sum(lengths[linked][has_op]))


def _of_timeline(timeline: pa.Table | None) -> dict[str, Any]:
    """The facts that follow from a memory timeline, for ranks without activities; and that it exists."""
    if timeline is None:
        return {}
    window = pc.min_max(timeline.column("ts_ns")).as_py()
    odd = len(invalid_timeline_rows(timeline))
    return {"memory_timeline": odd < timeline.num_rows, "start_ns": window["min"], "end_ns": window["max"],
            "events": timeline.num_rows, "non_events": odd}  # fmt: skip


def _of_additions(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """The facts that follow from a memory snapshot or another file that adds to a rank."""
    found: dict[str, Any] = {}
    for need, (table, times, others) in ADDITIONS.items():
        rows = tables.get(table)
        if rows is None:
            continue
        held = rows.num_rows or any(tables[name].num_rows for name in others if name in tables)
        found |= {need: bool(held), "events": rows.num_rows}
        if times is not None:
            window = pc.min_max(rows.column(times)).as_py()
            found |= {"start_ns": window["min"], "end_ns": window["max"]}
    return found


def _process(columns: Columns, nesting: Nesting) -> str | None:
    """The process with the most host slices; of several the last in text order."""
    words = columns.words("pid")
    counts = np.zeros(len(words) + 1, np.int64)
    for part in slabs(len(nesting.rows)):
        counts += np.bincount(columns.codes("pid", nesting.rows[part]).codes + 1, minlength=len(counts))
    counts = counts[1:]
    most = np.flatnonzero(counts == counts.max(initial=1))
    texts: list[str] = words.take(pa.array(most)).to_pylist()
    return max(texts, key=str.encode, default=None)


def _window(columns: Columns) -> dict[str, int | None]:
    """First start and last end of slices with valid times."""
    first, last = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    timed = is_slice(columns)
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
    modules = (
        pc.starts_with(columns.words("name"), MODULE_FRAME).to_numpy(zero_copy_only=False).astype(np.bool_)
    )
    return {
        "stacks": bool(frames.any()),
        "modules": bool((frames & columns.where("name", modules)).any()),
        "kernel_counters": bool(columns.is_one_of("category", ["cuda_profiler_range"]).any()),
    }


def _communicates(columns: Columns, launches: Launches, rules: Rules) -> bool:
    """Whether any GPU activity is communication, by arguments of a collective or by its name."""
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
    """Whether any annotation with valid times is a collective of a host backend."""
    noted = np.flatnonzero(columns.is_one_of("category", _ANNOTATIONS) & is_slice(columns))
    names = columns.codes("name", noted)
    codes = np.unique(names.codes)
    texts = names.words.take(pa.array(codes[codes >= 0])).to_pylist()
    return any(rules.matches(_HOST_COLLECTIVE, texts))
