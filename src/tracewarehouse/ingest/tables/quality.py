"""Table `data_quality`, each rule that fired on a rank with an example, and the facts of a rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.ingest.columns import among
from tracewarehouse.ingest.tables.launches import calls_by_name, have_id_of_launched, outermost_calls
from tracewarehouse.ingest.tables.model import (
    MODULE_FRAME,
    SENTINEL_IDS,
    LaunchState,
    QualityInput,
    RuleHits,
    Via,
    are_repeated,
    flags,
    group_numbers,
    is_slice,
    latest_before,
    schemas,
    slabs,
    start_and_end,
    used_texts,
    window,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracewarehouse.formats.base import Defect, Loss, Outcome, Redaction
    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import (
        Attribution,
        Flags,
        Launches,
        Numbers,
        Positions,
        Rows,
        StepAnnotations,
    )


# Maximum number of threads in a block.
MOST_BLOCK_THREADS: Final = 1024


def _activities(given: QualityInput, which: Flags) -> RuleHits:
    """GPU activities and their durations."""
    rows = given.launches.rows[which]
    return RuleHits(rows, given.columns.ints("dur_ns", rows))


def _unknown_launch(given: QualityInput) -> RuleHits:
    calls = given.calls
    is_named = given.columns.codes("name", calls.rows).codes >= 0
    linked = np.isin(calls.rows, given.launches.runtime)
    is_launch, _ = calls_by_name(given.columns, given.rules, calls)
    return _calls(given, linked & is_named & ~is_launch)


def _launch_without_gpu_activity(given: QualityInput) -> RuleHits:
    """Excludes a driver call inside the runtime call that launched a GPU activity: it has the same id."""
    calls, launches = given.calls, given.launches
    shares = have_id_of_launched(given.columns, calls, launches)
    is_launch, _ = calls_by_name(given.columns, given.rules, calls)
    return _calls(given, is_launch & ~np.isin(calls.rows, launches.runtime) & ~shares)


def _calls(given: QualityInput, which: Flags) -> RuleHits:
    calls = given.calls
    return RuleHits(calls.rows[which], calls.end_ns[which] - calls.ts_ns[which])


def _many_activities_per_launch(given: QualityInput) -> RuleHits:
    launches = given.launches
    # A call without a name may be a graph launch.
    positions = np.flatnonzero((launches.runtime >= 0) & ~launches.is_graph)
    positions = positions[given.columns.codes("name", launches.runtime[positions]).codes >= 0]
    order = positions[
        np.lexsort((launches.rows[positions], launches.ts_ns[positions], launches.runtime[positions]))
    ]
    is_further = launches.runtime[order[1:]] == launches.runtime[order[:-1]]
    which = np.zeros(len(launches.rows), np.bool_)
    which[order[1:][is_further]] = True
    return _activities(given, which)


def _correlation_reused(given: QualityInput) -> RuleHits:
    """Calls that are no part of an earlier one of their process with their id."""
    calls = given.calls
    order = outermost_calls(calls)
    ids, process = calls.correlation.values[order], given.columns.codes("pid", calls.rows[order]).codes
    reused = (ids[1:] == ids[:-1]) & (process[1:] == process[:-1])
    return RuleHits(calls.rows[order[1:][reused]])


def _start_before_launch(given: QualityInput) -> RuleHits:
    """The affected time is how long before its call it starts."""
    launches = given.launches
    which = (launches.runtime >= 0) & (launches.ts_ns < launches.call_ts_ns)
    return RuleHits(launches.rows[which], launches.call_ts_ns[which] - launches.ts_ns[which])


def _stream_overlap(given: QualityInput) -> RuleHits:
    """The affected time is the overlap with the earlier activity of the stream that ends last."""
    launches = given.launches
    lengths = launches.dur_ns
    lane = launches.lanes(given.columns)
    order = np.lexsort((launches.rows, lengths, launches.ts_ns, lane))
    starts = launches.ts_ns[order]
    ends = starts + lengths[order]
    earlier_end, has_earlier = latest_before(lane[order], ends)
    over = has_earlier & (earlier_end > starts)
    return RuleHits(launches.rows[order[over]], np.minimum(earlier_end, ends)[over] - starts[over])


def _multiple_processes(given: QualityInput) -> RuleHits:
    """GPU activities of other processes than the first one (in text order) on their device.

    Also those that were launched by another process than the first of several that use the same ids.
    """
    columns, launches = given.columns, given.launches
    rank, devices = columns.rank_index(launches.rows), columns.ints("device", launches.rows)
    known = np.flatnonzero(devices.valid)
    device = group_numbers(devices.values[known], rank[known])
    which = np.zeros(len(rank), np.bool_)
    which[known[_of_later_process(columns, launches.rows[known], device)]] = True
    calls = given.calls
    process = columns.codes("pid", calls.rows).codes
    with_id = np.flatnonzero(calls.correlation.valid & (process >= 0))
    caller = process[with_id]
    order = np.lexsort((caller, calls.correlation.values[with_id]))
    ids, caller = calls.correlation.values[with_id[order]], caller[order]
    is_shared = (ids[1:] == ids[:-1]) & (caller[1:] != caller[:-1])
    if is_shared.any():
        merged = columns.rank_index(calls.rows[with_id[order[1:][is_shared]]])
        launched = np.flatnonzero((launches.runtime >= 0) & np.isin(rank, merged))
        which[launched[_of_later_process(columns, launches.runtime[launched], rank[launched])]] = True
    return _activities(given, which)


def _of_later_process(columns: Columns, rows: Rows, group: Positions) -> Flags:
    """Whether the process of each row is not the first one of its group, in text order; False for none."""
    codes, words = columns.codes("pid", rows)
    used, number = np.unique(codes, return_inverse=True)
    names = words.take(pa.array(used, mask=used < 0))
    place = np.empty(len(used), np.int64)
    place[pc.sort_indices(names).to_numpy()] = np.arange(len(used))
    process = place[number]
    first = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, group, process)
    later: Flags = (codes >= 0) & (process != first[group])
    return later


def _invalid_block_size(given: QualityInput) -> RuleHits:
    """More threads in a block than possible, or none. A product that floats round is far out of range."""
    rows = given.launches.rows
    sides = [given.columns.ints(f"block_{axis}", rows) for axis in "xyz"]
    threads = np.ones(len(rows))
    for side in sides:
        threads *= side.values
    known = sides[0].valid & sides[1].valid & sides[2].valid
    return _activities(given, known & ~((threads >= 1) & (threads <= MOST_BLOCK_THREADS)))


_HASH_FACTORS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
# Maximum characters of an example; the example of redacted values lists them all.
_EXAMPLE_LENGTH: Final = 200
_REDACTIONS_LENGTH: Final = 4_000


class FiredRule(NamedTuple):
    """A rule that fired: number of rows, affected time (None if it affects no time), and the first row."""

    rule: str
    rows: int
    ns: int | None
    first: int


def fired_rules(given: QualityInput) -> tuple[list[FiredRule], ...]:
    """Every rule that fired on each rank, in no particular order; rows count from the first of the rank."""
    columns = given.columns
    found: tuple[list[FiredRule], ...] = tuple([] for _ in columns.parts)
    for rule, hits in _RULES.items():
        rows, ns = hits(given)
        of_row = columns.rank_index(rows)
        for rank in np.unique(of_row).tolist():
            of_rank = of_row == rank
            first = int(rows[of_rank].min() - columns.bounds[rank])
            found[rank].append(FiredRule(rule, int(of_rank.sum()), _total(ns, of_rank), first))
    return found


def _total(ns: Ints | Numbers | None, some: Flags) -> int | None:
    """The sum of the valid ones of some values; None if there are none, or if 64 bits cannot hold it."""
    if ns is None:
        return None
    values = ns[some] if isinstance(ns, np.ndarray) else ns.values[ns.valid & some]
    if not len(values):
        return None
    total = exact_sum(values)
    return total if -(2**63) <= total < 2**63 else None


def exact_sum(lengths: Numbers) -> int:
    """The exact sum, even if 64 bits cannot hold it."""
    return (int((lengths >> 32).sum()) << 32) + int((lengths & 0xFFFFFFFF).sum())


def non_events(columns: Columns) -> Positions:
    """Rows that are not events: not an object, no phase, or neither name nor time."""
    no_phase = ~_has_text(columns, "ph")
    rows = np.flatnonzero(~(no_phase | _has_text(columns, "name") | columns.valid("ts_ns")))
    named = pc.fill_null(pc.match_substring(columns.texts("extra", rows).cast(pa.string()), '"name"'), False)
    bare = columns.texts("ts_text", rows).is_null()
    rows = rows[flags(pc.and_(bare, pc.invert(named)))]
    return np.sort(np.concatenate((np.flatnonzero(no_phase), rows)))


def _has_text(columns: Columns, name: str) -> Flags:
    return columns.where(name, np.ones(len(columns.words(name)), np.bool_))


def invalid_timeline_rows(timeline: pa.Table) -> Positions:
    """Rows of a memory timeline that are not changes of memory."""
    odd: Positions = timeline.filter(pc.is_valid(timeline.column("element"))).column("event_id").to_numpy()
    return odd


def timeline_rules(timeline: pa.Table) -> Iterator[FiredRule]:
    """The rule that can fire on a memory timeline without activities."""
    odd = invalid_timeline_rows(timeline)
    if len(odd):
        yield FiredRule("non_event", len(odd), None, int(odd.min()))


def _unknown_category(given: QualityInput) -> RuleHits:
    words = given.columns.words("raw_category")
    rows = np.flatnonzero(given.columns.where("raw_category", ~among(words, given.rules.categories)))
    return RuleHits(rows, given.columns.ints("dur_ns", rows))


def _duplicate_slice(given: QualityInput) -> RuleHits:
    """A slice with the times, thread, name and category of an earlier one."""
    columns = given.columns
    rows = _repeated(columns, _slices(columns) & columns.valid("ts_ns") & columns.valid("dur_ns"))
    if not len(rows):
        return RuleHits(rows)
    keys: list[Positions] = [columns.codes(name, rows).codes for name in ("category", "name", "tid", "pid")]
    keys += [*(columns.ints(name, rows).values for name in ("dur_ns", "ts_ns")), columns.rank_index(rows)]
    order = np.lexsort([rows, *keys])
    same = np.ones(len(rows) - 1, np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    rows = rows[order[1:][same]]
    return RuleHits(rows, columns.ints("dur_ns", rows))


def _repeated(columns: Columns, slices: Flags) -> Positions:
    """Slices whose times may equal another's: numbers are compared first, so that few texts need to be."""
    slices = _starting_together(columns, slices)
    counts = [int(np.count_nonzero(slices[part])) for part in slabs(len(slices))]
    ordered = np.empty(sum(counts), np.uint64)
    for part, high in zip(slabs(len(slices)), np.cumsum(counts, dtype=np.int64).tolist(), strict=True):
        hashes = _time_hashes(columns, part)[slices[part]]
        ordered[high - len(hashes) : high] = hashes
    ordered.sort()
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    del ordered
    if not len(repeated):
        return np.empty(0, np.int64)

    found = []
    for part in slabs(len(slices)):
        rows = np.flatnonzero(slices[part])
        hashes = _time_hashes(columns, part)[rows]
        positions = np.searchsorted(repeated, hashes).clip(max=len(repeated) - 1)
        found.append(rows[repeated[positions] == hashes] + part.start)
    return np.concatenate(found)


def _starting_together(columns: Columns, slices: Flags) -> Flags:
    """The slices that start with another one; all of them if rows are not in the order of their start."""
    parts: list[Numbers] = []
    for part in slabs(len(slices)):
        starts = columns.ints("ts_ns", part).values[slices[part]]
        if (starts[1:] < starts[:-1]).any():
            return slices
        parts.append(starts)
    starts = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if (starts[1:] < starts[:-1]).any():
        return slices
    found = slices.copy()
    found[slices] = are_repeated(starts)
    return found


def _time_hashes(columns: Columns, part: slice) -> NDArray[np.uint64]:
    """A hash of start and duration of each row."""
    times, lengths = columns.ints("ts_ns", part).values, columns.ints("dur_ns", part).values
    return times.view(np.uint64) * _HASH_FACTORS[0] + lengths.view(np.uint64) * _HASH_FACTORS[1]


def _slices(columns: Columns) -> Flags:
    return columns.is_one_of("ph", ["X", "B"])


def _untimed(columns: Columns) -> tuple[Positions, Flags]:
    """Slices without a valid duration, and which of them have a negative one in the file."""
    rows = np.flatnonzero(_slices(columns) & ~columns.valid("dur_ns"))
    negative = pc.starts_with(columns.texts("dur_text", rows).cast(pa.string()), "-")
    return rows, flags(pc.fill_null(negative, False))


def _negative_duration(given: QualityInput) -> RuleHits:
    rows, negative = _untimed(given.columns)
    return RuleHits(rows[negative])


def _epoch_zero(given: QualityInput) -> RuleHits:
    columns = given.columns
    rows = np.flatnonzero(_slices(columns) & ~columns.valid("ts_ns"))
    return RuleHits(rows[_written_as_zero(given, rows)])


def _written_as_zero(given: QualityInput, rows: Positions) -> Flags:
    """Whether the start of each row is the number 0 in the file."""
    numbers = given.rules.numbers(given.columns.texts("ts_text", rows).to_pylist(), "DOUBLE")
    return np.array([number == 0 for number in numbers], np.bool_)


def _unusable_time(given: QualityInput) -> RuleHits:
    columns = given.columns
    rows, negative = _untimed(columns)
    rows = rows[~negative]
    rows = rows[columns.is_one_of("ph", ["X"], rows)]
    return RuleHits(rows[columns.valid("ts_ns", rows) | ~_written_as_zero(given, rows)])


def _open_bracket(given: QualityInput) -> RuleHits:
    columns = given.columns
    begins = np.flatnonzero(columns.is_one_of("ph", ["B"]) & ~columns.valid("end_id"))
    ended = np.flatnonzero(columns.is_one_of("ph", ["E"]))
    return RuleHits(np.concatenate((begins, ended[~np.isin(ended, _known(columns, "end_id")[1])])))


def _crossing_slice(given: QualityInput) -> RuleHits:
    """The affected time is how much later than its parent it ends."""
    columns = given.columns
    rows = np.flatnonzero(columns.flags("crosses"))
    _, ends = start_and_end(columns, rows)
    _, parent_ends = start_and_end(columns, columns.ints("parent_id", rows).values)
    return RuleHits(rows, ends - parent_ends)


def _dangling_frame(given: QualityInput) -> RuleHits:
    columns = given.columns
    rows, callers = _known(columns, "python_parent_id")
    known = columns.apart(*reversed(_known(columns, "python_id")))
    rows = rows[~np.isin(columns.apart(callers, rows), known)]
    return RuleHits(rows, columns.ints("dur_ns", rows))


def _known(columns: Columns, name: str) -> tuple[Positions, Numbers]:
    """The rows with a value in a column, and the values."""
    rows = np.flatnonzero(columns.valid(name)).astype(np.int32)
    return rows, columns.ints(name, rows).values


def _sentinel_id(given: QualityInput) -> RuleHits:
    """0 is the usual value for no id and is not reported."""
    which = np.zeros(given.columns.rows, np.bool_)
    for name in ("correlation", "external_id"):
        if given.columns.has(name):
            for part in slabs(len(which)):
                ids = given.columns.ints(name, part)
                which[part] |= ids.valid & (ids.values != 0) & np.isin(ids.values, SENTINEL_IDS)
    return RuleHits(np.flatnonzero(which))


def _steps_inferred(given: QualityInput) -> RuleHits:
    inferred = [steps.rows for steps in given.step_annotations if steps.inferred]
    return RuleHits(np.concatenate([np.zeros(0, np.int32), *inferred]))


_RULES: Final[dict[str, Callable[[QualityInput], RuleHits]]] = {
    "non_event": lambda given: RuleHits(non_events(given.columns)),
    "unknown_category": _unknown_category,
    "duplicate_slice": _duplicate_slice,
    "negative_duration": _negative_duration,
    "epoch_zero": _epoch_zero,
    "invalid_time": _unusable_time,
    "unpaired_begin_end": _open_bracket,
    "crossing_slice": _crossing_slice,
    "dangling_frame": _dangling_frame,
    "flow_without_start": lambda given: RuleHits(given.flows_without_start),
    "sentinel_id": _sentinel_id,
    "steps_inferred": _steps_inferred,
    "before_window": lambda given: _activities(given, given.launches.state == LaunchState.BEFORE_WINDOW),
    "missing_launch": lambda given: _activities(given, given.launches.state == LaunchState.MISSING),
    "launch_by_flow": lambda given: _activities(given, given.launches.via == Via.FLOW),
    "unknown_launch": _unknown_launch,
    "launch_without_gpu_activity": _launch_without_gpu_activity,
    "many_activities_per_launch": _many_activities_per_launch,
    "correlation_reused": _correlation_reused,
    "start_before_launch": _start_before_launch,
    "stream_overlap": _stream_overlap,
    "multiple_processes": _multiple_processes,
    "invalid_block_size": _invalid_block_size,
}


class Row(NamedTuple):
    """A row of the table without its severity."""

    rule: str
    rows: int
    affected_ns: int | None
    example: str | None


def data_quality(
    fired: Iterable[FiredRule], columns: Columns | None, outcome: Outcome, rules: Rules
) -> pa.Table:
    """The rules that fired on the events and the findings of the file reader, by severity and rule.

    Findings of the format are stored unchanged. A rule that is not in `quality_rules` (of a format that is
    registered from outside) gets the severity info.
    """
    rows = [*_losses(outcome.losses), *_redactions(outcome.redactions), *_findings(outcome.findings)]
    if columns is not None and len(repaired := np.flatnonzero(columns.flags("repaired"))):
        rows.append(Row("repaired_event", len(repaired), None, _example(columns, int(repaired[0]))))
    rows += [Row(each.rule, each.rows, each.ns, _example(columns, each.first)) for each in fired]
    known = rules.quality
    severities = [(known[row.rule].severity if row.rule in known else "info", row) for row in rows]
    severities.sort(key=lambda each: (each[0], each[1].rule))
    return pa.Table.from_pylist(
        [{"severity": severity} | row._asdict() for severity, row in severities],
        schemas(rules)["data_quality"],
    )


def _losses(losses: Iterable[Loss]) -> Iterator[Row]:
    """Lost events (1 if their number is unknown), else byte ranges; the example is the first range."""
    rows: Counter[str] = Counter()
    examples: dict[str, tuple[int, str]] = {}
    for loss in losses:
        rule = "skipped_bytes" if loss.events_lost == 0 else "lost_events"
        rule = "repaired_file" if loss.byte_to == loss.byte_from else rule
        rows[rule] += loss.events_lost or 1
        example = (loss.byte_from, f"bytes {loss.byte_from} to {loss.byte_to}: {loss.reason}")
        examples[rule] = min(examples.get(rule, example), example)
    for rule, count in rows.items():
        yield Row(rule, count, None, examples[rule][1][:_EXAMPLE_LENGTH])


def _redactions(redactions: Iterable[Redaction]) -> Iterator[Row]:
    """All redacted values, by event and path."""
    locations = sorted(
        (-1, f"header {each.path}")
        if each.event_id is None
        else (each.event_id, f"#{each.event_id} {each.path}")
        for each in redactions
    )
    if locations:
        example = ", ".join(text for _, text in locations)
        yield Row("redacted_value", len(locations), None, example[:_REDACTIONS_LENGTH])


def _findings(findings: Iterable[Defect]) -> Iterator[Row]:
    """The findings of the format; the rows of several findings of one rule are summed."""
    first: dict[str, Defect] = {}
    rows: Counter[str] = Counter()
    for each in findings:
        first.setdefault(each.rule, each)
        rows[each.rule] += each.rows
    for rule, each in first.items():
        yield Row(rule, rows[rule], None, each.example)


def _example(columns: Columns | None, row: int) -> str:
    """`#`, the event_id and the name."""
    name = None if columns is None else columns.texts("name", np.array([row]))[0].as_py()
    return f"#{row}{'' if name is None else ' ' + name}"[:_EXAMPLE_LENGTH]


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
# Annotations of collectives of backends that run on the host, or that the backend's own profiler records.
_HOST_COLLECTIVE: Final = r"^(gloo|mpi):\w|^(nccl|rccl|hccl|xccl|ucc)::\w"
_FRAMEWORKS: Final = {"pytorch": r"^(aten|c10d|torch)::|^ProfilerStep#", "jax": r"^XlaModule|^PjRt|^jit_"}
_ANNOTATIONS: Final = ("user_annotation", "gpu_user_annotation")


class Coverage(Struct, frozen=True):
    """GPU time: in total, with a known launch, and with a known operator."""

    gpu_ns: int = 0
    launch_known_ns: int = 0
    with_op_ns: int = 0


def rank_facts(
    from_activities: Mapping[str, Any],
    timeline: pa.Table | None,
    base_time_ns: int,
    additions: Mapping[str, pa.Table] = _NO_TABLES,
) -> dict[str, Any]:
    """All facts of a rank: from its activities, else from its memory timeline or from what adds to a rank."""
    nothing = dict.fromkeys(("pid", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns", "framework"))
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


def activity_facts(
    columns: Columns,
    rules: Rules,
    host_rows: Rows,
    launches: Launches,
    step_annotations: StepAnnotations,
    has: Mapping[str, bool],
) -> dict[str, Any]:
    """The facts that follow from the activities of a rank; `has`: whether tables have rows of a kind."""
    return {
        "pid": _process(columns, host_rows),
        **_window(columns, launches),
        **_device(columns, launches),
        "events": columns.rows,
        "non_events": len(non_events(columns)),
        "steps": len(np.unique(step_annotations.step)),
        "shapes": columns.has("shapes"),
        **_host(columns),
        **has,
        "collectives": has["collectives"] or _host_collectives(columns, rules),
    }


def coverage(
    columns: Columns, launches: Launches, attribution: Attribution, hlo: pa.Table | None = None
) -> tuple[Coverage, ...]:
    """Coverage of all GPU activities of each rank, in summed time.

    An operator around a graph launch with several activities encloses only the launch, so it does not count.
    """
    lengths = launches.dur_ns
    linked = launches.runtime >= 0
    call = np.searchsorted(attribution.calls, launches.runtime[linked])
    has_op = linked.copy()
    has_op[linked] = attribution.op[call] >= 0
    if launches.is_graph.any():
        several = np.zeros(len(linked), np.bool_)
        several[linked] = np.bincount(call)[call] > 1
        has_op &= ~(launches.is_graph & several)
    if hlo is not None:
        has_op |= linked & flags(hlo["op"].is_valid())
    return tuple(
        Coverage(
            exact_sum(lengths[rank]),
            exact_sum(lengths[rank][linked[rank]]),
            exact_sum(lengths[rank][has_op[rank]]),
        )
        for rank in columns.slices(launches.rows)
    )


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
    for need, (table, time_column, others) in ADDITIONS.items():
        rows = tables.get(table)
        if rows is None:
            continue
        held = rows.num_rows or any(tables[name].num_rows for name in others if name in tables)
        found |= {need: bool(held), "events": rows.num_rows}
        if time_column is not None:
            window = pc.min_max(rows.column(time_column)).as_py()
            found |= {"start_ns": window["min"], "end_ns": window["max"]}
    return found


def _process(columns: Columns, host_rows: Rows) -> str | None:
    """The process with the most host slices; of several the last in text order."""
    words = columns.words("pid")
    counts = np.zeros(len(words) + 1, np.int64)
    for part in slabs(len(host_rows)):
        counts += np.bincount(columns.codes("pid", host_rows[part]).codes + 1, minlength=len(counts))
    counts = counts[1:]
    most = np.flatnonzero(counts == counts.max(initial=1))
    texts: list[str] = words.take(pa.array(most)).to_pylist()
    return max(texts, key=str.encode, default=None)


def _window(columns: Columns, launches: Launches) -> dict[str, int | None]:
    """First start and last end of slices with valid times, malformed durations cut."""
    timed = is_slice(columns)
    if not timed.any():
        return {"start_ns": None, "end_ns": None}
    timed[launches.rows] = False
    first, last = window(columns, timed)
    return {
        "start_ns": int(launches.ts_ns.min(initial=first)),
        "end_ns": int(launches.end_ns.max(initial=last)),
    }


def _device(columns: Columns, launches: Launches) -> dict[str, Any]:
    rows = launches.rows
    ends = launches.end_ns
    return {
        "gpu_start_ns": int(launches.ts_ns.min()) if len(rows) else None,
        "gpu_end_ns": int(ends.max()) if len(rows) else None,
        "gpu_activities": len(rows),
        "gpu": bool(len(rows)),
        "launches": bool((launches.state == LaunchState.KNOWN).any()),
        "collective_args": bool(columns.flags("has_collective", rows).any()),
    }


def _framework(columns: Columns) -> str | None:
    """The framework that writes operators or modules of these names."""
    names = columns.words("name")
    for framework, pattern in _FRAMEWORKS.items():
        if pc.any(pc.match_substring_regex(names, pattern)).as_py():
            return framework
    return None


def _host(columns: Columns) -> dict[str, bool | str | None]:
    frames = columns.is_one_of("category", ["python_function"])
    is_module = flags(pc.starts_with(columns.words("name"), MODULE_FRAME))
    return {
        "framework": _framework(columns),
        "stacks": bool(frames.any()),
        "modules": bool((frames & columns.where("name", is_module)).any()),
        "kernel_counters": bool(columns.is_one_of("category", ["cuda_profiler_range"]).any()),
    }


def _host_collectives(columns: Columns, rules: Rules) -> bool:
    """Whether any annotation with valid times is a collective of a host backend."""
    noted = np.flatnonzero(columns.is_one_of("category", _ANNOTATIONS) & is_slice(columns))
    _, texts = used_texts(columns.codes("name", noted))
    return any(rules.matches(_HOST_COLLECTIVE, texts))
