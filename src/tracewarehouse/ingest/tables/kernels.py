"""GPU rows: kernels, copies and sets, what launched them and what they belong to.

What a row is, the rules for its category and name say; a row with a collective's arguments communicates. The
arguments of a collective are the row's own, else those of the operator that launched it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.made import numbers, rows_or_null, taken, worded
from tracewarehouse.ingest.tables.model import PASSES, LaunchState
from tracewarehouse.ingest.tables.rows import combinations, local_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags, Launches, Owners, Rows

_SLAB_ROWS: Final = 122_880
# Names in the paths of a slab: deep paths make smaller slabs.
_SLAB_NAMES: Final = 1 << 19
_SIZES: Final = (
    "correlation", "external_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
    "registers_per_thread", "shared_memory_bytes", "occupancy", "blocks_per_sm", "warps_per_sm", "bytes",
    "bandwidth_bytes_per_ns", "graph_id", "graph_node_id",
)  # fmt: skip
# Column of the table → column of the activities.
_MESSAGE: Final = {
    "collective": "collective", "process_group": "process_group", "group_size": "group_size",
    "group_ranks": "group_ranks", "dtype": "collective_dtype", "in_elements": "in_elements",
    "out_elements": "out_elements", "sequence": "collective_sequence",
}  # fmt: skip
_COPIES: Final = {"gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_KINDS: Final = ("communication", "computation", "memory", "other")
_STATES: Final = tuple(state.name.lower() for state in LaunchState)


def kernels(columns: Columns, rules: Rules, launches: Launches, owners: Owners) -> Iterator[pa.Table]:
    """Table `kernels` in slabs, in the order of rows."""
    called = _places(owners, launches.runtime)
    for part in _slabs(owners, called):
        yield _slab(columns, rules, launches, owners, called[part], part)


def _places(owners: Owners, runtime: Rows) -> NDArray[np.int64]:
    """The place of each row's call in `owners.calls`, -1 without a call."""
    return np.where(runtime >= 0, np.searchsorted(owners.calls, runtime), -1)


def _slabs(owners: Owners, called: NDArray[np.int64]) -> Iterator[slice]:
    """Consecutive rows, few enough that the texts of their paths fit in memory; at least one slice."""
    path = np.append(owners.path, np.int32(-1))[called]
    if not len(path):
        yield slice(0, 0)
    low = 0
    while low < len(path):
        high = min(low + _SLAB_ROWS, len(path))
        names = np.cumsum(owners.paths.lengths(path[low:high]))
        # A path that comes again costs nothing; only where all together are too long are they counted.
        if names[-1] > _SLAB_NAMES:
            distinct, first = np.unique(path[low:high], return_index=True)
            new = np.zeros(high - low, np.int64)
            new[first] = owners.paths.lengths(distinct)
            high = low + max(int(np.searchsorted(np.cumsum(new), _SLAB_NAMES, side="right")), 1)
        yield slice(low, high)
        low = high


def _slab(
    columns: Columns, rules: Rules, launches: Launches, owners: Owners, called: NDArray[np.int64], part: slice
) -> pa.Table:
    """Consecutive GPU rows as a table; `called` is their calls' place in `owners.calls`."""
    rows = launches.rows[part]
    names = columns.arrow("name", rows)
    has_message = columns.flags("has_collective", rows)
    activity, kind, short_name = _classified(columns.arrow("category", rows), names, has_message, rules)

    def owner(found: Rows) -> pa.Array:
        return rows_or_null(np.append(found, found.dtype.type(-1))[called])

    speaking = np.where(has_message, rows, np.append(owners.collective, np.int32(-1))[called])
    speaking[kind != _KINDS.index("communication")] = -1
    pass_ = np.append(owners.pass_, np.int8(PASSES.index("other")))[called]
    return pa.table(
        {
            "event_id": numbers(rows),
            "activity": activity,
            "name": names,
            "short_name": short_name,
            "kind": worded(kind, _KINDS),
            "device": numbers(launches.device[part]),
            "stream": numbers(launches.stream[part]),
            **taken(columns, rows, {name: name for name in ("ts_ns", "dur_ns", *_SIZES)}),
            **_messages(columns, speaking),
            "runtime_id": rows_or_null(launches.runtime[part]),
            "op_id": owner(owners.op),
            "top_op_id": owner(owners.top_op),
            "module_id": owner(owners.module),
            "annotation_id": owner(owners.annotation),
            **taken(columns, rows, {"step": "step"}),
            "pass": worded(pass_, PASSES),
            "launch_state": worded(launches.state[part], _STATES),
            "op_sig": _op_signatures(columns, np.append(owners.op, np.int32(-1))[called]),
            "path_sig": _path_signatures(owners, np.append(owners.path, np.int32(-1))[called]),
        }
    )


def _classified(
    category: pa.Array, name: pa.Array, has_message: Flags, rules: Rules
) -> tuple[pa.Array, NDArray[np.int8], pa.Array]:
    """Activity, kind (a place in `_KINDS`) and short name, by rules for each distinct category and name."""
    categories, category_words = local_codes(category)
    names, name_words = local_codes(name)
    first, number = combinations(categories, names)
    which = [
        (str(category_words[code].as_py()), name_words[word].as_py() if word >= 0 else None)
        for code, word in zip(categories[first].tolist(), names[first].tolist(), strict=True)
    ]
    told = rules.device_kinds(which)
    ruled = list(zip(which, told, strict=True))
    activity = [_COPIES.get(category) or rule[0] or "kernel" for (category, _), rule in ruled]
    kind = ["memory" if category in _COPIES else rule[1] or "computation" for (category, _), rule in ruled]
    short = [None if name is None else rule[2] for (_, name), rule in ruled]
    kinds = np.array([_KINDS.index(each) for each in kind], np.int8)[number]
    is_copy = np.array([c in _COPIES for c, _ in which], np.bool_)[number]
    kinds[has_message & ~is_copy] = _KINDS.index("communication")
    return _spread(activity, number), kinds, _spread(short, number)


def _spread(texts: list[str] | list[str | None], number: NDArray[np.integer[Any]]) -> pa.Array:
    """The text of each row; `number` is its place in the texts."""
    words: dict[str, int] = {}
    codes = [-1 if text is None else words.setdefault(text, len(words)) for text in texts]
    return worded(np.array(codes, np.int32)[number], list(words))


def _messages(columns: Columns, rows: NDArray[np.integer[Any]]) -> dict[str, pa.Array]:
    """The collective's arguments that these rows carry, null for -1."""
    there = rows >= 0
    found = taken(columns, rows[there], _MESSAGE)
    place = pa.array(np.cumsum(there) - 1, mask=~there)
    return {name: column.take(place) for name, column in found.items()}


def _op_signatures(columns: Columns, op: Rows) -> pa.Array:
    """Name, input shapes and input types of each row's operator; null without one or without its name."""
    ops, number = np.unique(op, return_inverse=True)
    known = ops >= 0
    rows = ops[known]
    parts = [local_codes(columns.arrow(name, rows)) for name in ("name", "shapes", "dtypes")]
    first, distinct = combinations(*(codes for codes, _ in parts))
    texts = [_signature(*(_word(words, codes[row]) for codes, words in parts)) for row in first.tolist()]
    place = np.full(len(ops), -1, np.int64)
    place[known] = distinct
    return _spread([*texts, None], place[number])


def _word(words: pa.Array, code: int) -> str | None:
    return words[code].as_py() if code >= 0 else None


def _signature(name: str | None, shapes: str | None, dtypes: str | None) -> str | None:
    if name is None:
        return None
    return " ".join(text for text in (name, shapes, dtypes) if text is not None)


def _path_signatures(owners: Owners, path: NDArray[np.int32]) -> pa.Array:
    """The text of each row's path, null for the empty one."""
    used, number = np.unique(path, return_inverse=True)
    texts: list[str | None] = [None] * int((used < 0).sum())
    return _spread([*texts, *owners.paths.texts(used[used >= 0].tolist())], number)
