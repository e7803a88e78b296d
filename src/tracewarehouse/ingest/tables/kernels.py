"""Table `kernels`: GPU activities (kernels, memcpy, memset), their launches, attribution and idle streams.

Rules for category and name classify an activity; one with arguments of a collective is communication. The
arguments of a collective are the activity's own, else those of the operator that launched it. For idle time,
the activities of a stream are in order of start, end, launch (unknown ones last) and position in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.naming import header_of
from tracewarehouse.ingest.tables.model import (
    PASSES,
    LaunchState,
    begin_group,
    bigint_column,
    distinct_combinations,
    encoded_texts,
    id_column,
    indexed_texts,
    last_so_far,
    selected_columns,
    slabs,
    text_codes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Attribution, Flags, Launches, Rows, Times


_UNKNOWN: Final = np.iinfo(np.int64).max


class StreamIdle(NamedTuple):
    """Of each GPU activity: the idle time of its stream before it, and the row whose end begins that time.

    `is_first` marks the first activity of each stream, which has no idle time. `previous` is -1 without idle
    time.
    """

    idle_ns: Times
    is_first: Flags
    previous: Rows

    def part(self, some: slice) -> StreamIdle:
        """Of some of the GPU activities."""
        return StreamIdle(self.idle_ns[some], self.is_first[some], self.previous[some])


def stream_idle(columns: Columns, launches: Launches) -> StreamIdle:
    """The idle time before every GPU activity, in the order of `launches`."""
    count = len(launches.rows)
    idle_ns, previous = np.zeros(count, np.int64), np.full(count, -1, np.int32)
    is_first = np.zeros(count, np.bool_)
    end = launches.end_ns
    call = np.where(launches.runtime >= 0, launches.call_ts_ns, _UNKNOWN)
    lane = launches.lanes(columns)
    order = np.lexsort((launches.rows, call, end, launches.ts_ns, lane))
    begins = begin_group(lane[order])
    # Of equal ends the last row.
    latest = order[last_so_far(np.lexsort((launches.rows[order], end[order])), begins)]
    later = np.flatnonzero(~begins)
    reached = latest[later - 1]
    is_gap = launches.ts_ns[order[later]] > end[reached]
    after, before = order[later[is_gap]], reached[is_gap]
    idle_ns[after] = launches.ts_ns[after] - end[before]
    previous[after] = launches.rows[before]
    is_first[order[begins]] = True
    return StreamIdle(idle_ns, is_first, previous)


_SLAB_ROWS: Final = 122_880
# Maximum number of names in the paths of a slab: deep paths make smaller slabs.
_SLAB_NAMES: Final = 1 << 19
_OWN: Final = (
    "correlation", "external_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
    "registers_per_thread", "shared_memory_bytes", "occupancy", "blocks_per_sm", "warps_per_sm", "bytes",
    "bandwidth_bytes_per_ns", "graph_id", "graph_node_id", "step",
)  # fmt: skip
# Columns that are fields of `Launches`, and event_ids that are fields of `Attribution`.
_OF_LAUNCH: Final = ("device", "stream", "ts_ns", "dur_ns")
_OF_CALL: Final = ("op", "top_op", "module", "annotation")
# Column of the table → column of the activities.
_MESSAGE: Final = {
    "collective": "collective", "process_group": "process_group", "group_size": "group_size",
    "group_ranks": "group_ranks", "dtype": "collective_dtype", "in_elements": "in_elements",
    "out_elements": "out_elements", "sequence": "collective_sequence",
}  # fmt: skip
_COPIES: Final = {"gpu_memcpy": "memcpy", "gpu_memset": "memset"}
KINDS: Final = ("communication", "computation", "memory", "other")
_STATES: Final = tuple(state.name.lower() for state in LaunchState)


def hlo_of(columns: Columns, rules: Rules, launches: Launches, headers: Sequence[str]) -> pa.Table | None:
    """What profiles of JAX say about each GPU activity: operator, modules and work; None without any."""
    if not any("xplane" in header_of(header) for header in headers):
        return None
    found, contract = [], rules.catalog.get("xplane_kernels", kind="format")
    for part in slabs(max(len(launches.rows), 1), _SLAB_ROWS):
        said = rules.query(contract.body, pa.table({"args": columns.texts("args", launches.rows[part])}))
        encoded = [
            each.dictionary_encode() if pa.types.is_string(each.type) else each for each in said.columns
        ]
        found.append(pa.table(encoded, said.column_names))
    return pa.concat_tables(found).unify_dictionaries()


def kernels(
    columns: Columns,
    launches: Launches,
    attribution: Attribution,
    classes: Classes,
    idle: StreamIdle,
    hlo: pa.Table | None = None,
) -> Iterator[pa.Table]:
    """Table `kernels` in slabs, in row order; `idle` is `stream_idle`, `hlo` is `hlo_of`."""
    call_index = call_indexes(attribution, launches.runtime)
    for part in _slabs(attribution, call_index):
        slab = _slab(columns, launches, attribution, classes, idle, call_index[part], part)
        if hlo is not None:
            own = hlo.slice(part.start, part.stop - part.start)
            for name, of_hlo in (("op_sig", "op"), ("path_sig", "path"), ("pass", "pass")):
                values = pc.coalesce(own[of_hlo].cast(pa.string()), slab[name].cast(pa.string()))
                slab = slab.set_column(slab.schema.get_field_index(name), name, values.dictionary_encode())
        yield slab


def call_indexes(attribution: Attribution, runtime: Rows) -> NDArray[np.int64]:
    """The index of each activity's call in `attribution.calls`, -1 if unknown."""
    return np.where(runtime >= 0, np.searchsorted(attribution.calls, runtime), -1)


def _slabs(attribution: Attribution, call_index: NDArray[np.int64]) -> Iterator[slice]:
    """Slabs of consecutive rows, small enough for the texts of their paths; at least one."""
    path = np.append(attribution.path, np.int32(-1))[call_index]
    if not len(path):
        yield slice(0, 0)
    low = 0
    while low < len(path):
        high = min(low + _SLAB_ROWS, len(path))
        names = np.cumsum(attribution.paths.lengths(path[low:high]))
        # A repeated path costs nothing; distinct ones are counted only if all together are too long.
        if names[-1] > _SLAB_NAMES:
            distinct, first = np.unique(path[low:high], return_index=True)
            new = np.zeros(high - low, np.int64)
            new[first] = attribution.paths.lengths(distinct)
            high = low + max(int(np.searchsorted(np.cumsum(new), _SLAB_NAMES, side="right")), 1)
        yield slice(low, high)
        low = high


def _slab(
    columns: Columns,
    launches: Launches,
    attribution: Attribution,
    classes: Classes,
    idle: StreamIdle,
    call_index: NDArray[np.int64],
    part: slice,
) -> pa.Table:
    """A slab as a table; `call_index` has the indexes of its calls in `attribution.calls`."""
    rows = launches.rows[part]
    kind = classes.kind[part]
    has_message = columns.flags("has_collective", rows)

    def enclosing(found: Rows) -> pa.Array:
        return id_column(np.append(found, found.dtype.type(-1))[call_index])

    message_rows = np.where(has_message, rows, np.append(attribution.collective, np.int32(-1))[call_index])
    message_rows[kind != KINDS.index("communication")] = -1
    pass_ = np.append(attribution.pass_, np.int8(PASSES.index("other")))[call_index]
    return pa.table(
        {
            "event_id": bigint_column(rows),
            "activity": classes.activity[part],
            "name": columns.arrow("name", rows),
            "short_name": classes.short_name[part],
            "kind": encoded_texts(kind, KINDS),
            **{name: bigint_column(getattr(launches, name)[part]) for name in _OF_LAUNCH},
            **selected_columns(columns, rows, _OWN),
            **_columns_at(columns, message_rows, _MESSAGE),
            "runtime_id": id_column(launches.runtime[part]),
            **{f"{name}_id": enclosing(getattr(attribution, name)) for name in _OF_CALL},
            "pass": encoded_texts(pass_, PASSES),
            "launch_state": encoded_texts(launches.state[part], _STATES),
            "op_sig": _op_signatures(columns, np.append(attribution.op, np.int32(-1))[call_index]),
            "path_sig": _path_signatures(attribution, np.append(attribution.path, np.int32(-1))[call_index]),
            **_launch_and_idle(columns, launches, idle, part),
        }
    )


def _launch_and_idle(
    columns: Columns, launches: Launches, idle: StreamIdle, part: slice
) -> dict[str, pa.Array]:
    """The launching call, and the idle time of the stream before each activity."""
    runtime = launches.runtime[part]
    to_start_ns = launches.ts_ns[part] - launches.call_ts_ns[part]
    return {
        **_columns_at(columns, runtime, {"launch_api": "name", "launch_dur_ns": "dur_ns"}),
        "launch_to_start_ns": bigint_column(to_start_ns, runtime >= 0),
        "stream_idle_ns": bigint_column(idle.idle_ns[part], ~idle.is_first[part]),
        "stream_previous_id": id_column(idle.previous[part]),
    }


class Classes(NamedTuple):
    """Activity, kind (an index into `KINDS`) and short name of GPU activities, and which are memcpys."""

    activity: pa.Array
    kind: NDArray[np.int8]
    short_name: pa.Array
    is_copy: Flags

    def part(self, some: slice) -> Classes:
        """Those of some of the activities."""
        return Classes(self.activity[some], self.kind[some], self.short_name[some], self.is_copy[some])


def classify(columns: Columns, rules: Rules, launches: Launches, attribution: Attribution) -> Classes:
    """The classes of GPU activities; rules run per distinct category and name.

    A kernel with arguments of a collective, or launched by an operator that communicates, is communication,
    whatever its name. Before all of this, users' rules decide: for the operator, then for the name.
    """
    rows = launches.rows
    has_message = columns.flags("has_collective", rows)
    categories, category_words = columns.codes("category", rows)
    names, name_words = columns.codes("name", rows)
    first, number = distinct_combinations(categories, names)
    which = [
        (str(category_words[code].as_py()), name_words[word].as_py() if word >= 0 else None)
        for code, word in zip(categories[first].tolist(), names[first].tolist(), strict=True)
    ]
    ruled_names = rules.device_kinds(which)
    ruled = list(zip(which, ruled_names, strict=True))
    activity = [_COPIES.get(category) or rule[0] or "kernel" for (category, _), rule in ruled]
    kind = ["memory" if category in _COPIES else rule[1] or "computation" for (category, _), rule in ruled]
    short = [None if name is None else rule[2] for (_, name), rule in ruled]
    kinds = np.array([KINDS.index(each) for each in kind], np.int8)[number]
    is_memory = np.array([c in _COPIES for c, _ in which], np.bool_)[number]
    is_kernel = np.array([category == "kernel" for category, _ in which], np.bool_)[number]
    operator_communicates = _by_operator(columns, launches, attribution, rules.communicate, False)
    kinds[has_message & ~is_memory | operator_communicates & is_kernel] = KINDS.index("communication")
    if rules.own:
        of_name = np.array(_codes(rules.own_kinds("kernel", [name for _, name in which])), np.int8)[number]
        own = _by_operator(
            columns, launches, attribution, lambda names: _codes(rules.own_kinds("operator", names)), -1
        )
        own = np.where(own >= 0, own, of_name)
        kinds = np.where(is_kernel & (own >= 0), own, kinds).astype(np.int8)
    is_copy = np.array([each == "memcpy" for each in activity], np.bool_)[number]
    return Classes(indexed_texts(activity, number), kinds, indexed_texts(short, number), is_copy)


def _codes(kinds: Iterable[str | None]) -> list[int]:
    """The index of each kind in `KINDS`, -1 for None."""
    return [-1 if kind is None else KINDS.index(kind) for kind in kinds]


def _by_operator(
    columns: Columns,
    launches: Launches,
    attribution: Attribution,
    evaluate: Callable[[list[str | None]], Sequence[int]],
    unknown: int,
) -> NDArray[Any]:
    """What `evaluate` returns for the name of the operator that launched each activity; else `unknown`."""
    op, number = np.unique(attribution.op, return_inverse=True)
    found = np.full(len(op), unknown)
    found[op >= 0] = evaluate(columns.texts("name", op[op >= 0]).to_pylist())
    return np.append(found[number], unknown)[call_indexes(attribution, launches.runtime)]


def _columns_at(
    columns: Columns, rows: NDArray[np.integer[Any]], names: Mapping[str, str]
) -> dict[str, pa.Array]:
    """Columns of the given rows (name in the table → name in the activities), null for -1."""
    there = rows >= 0
    found = selected_columns(columns, rows[there], names)
    position = pa.array(np.cumsum(there) - 1, mask=~there)
    return {name: column.take(position) for name, column in found.items()}


def _op_signatures(columns: Columns, op: Rows) -> pa.Array:
    """Name, input shapes and input types of each row's operator; null without an operator or a name."""
    ops, number = np.unique(op, return_inverse=True)
    known = ops >= 0
    rows = ops[known]
    parts = [text_codes(columns.arrow(name, rows)) for name in ("name", "shapes", "dtypes")]
    first, distinct = distinct_combinations(*(codes for codes, _ in parts))
    texts: list[str | None] = []
    for row in first.tolist():
        known_words = [words[codes[row]].as_py() for codes, words in parts if codes[row] >= 0]
        texts.append(" ".join(known_words) if parts[0][0][row] >= 0 else None)
    position = np.full(len(ops), -1, np.int64)
    position[known] = distinct
    return indexed_texts([*texts, None], position[number])


def _path_signatures(attribution: Attribution, path: NDArray[np.int32]) -> pa.Array:
    """The text of each row's path, null for the empty path."""
    used, number = np.unique(path, return_inverse=True)
    texts: list[str | None] = [None] * int((used < 0).sum())
    return indexed_texts([*texts, *attribution.paths.texts(used[used >= 0].tolist())], number)
