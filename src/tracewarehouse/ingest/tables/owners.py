"""What a call belongs to: operators, module, annotation and pass of training.

A call belongs to the operators (category cpu_op) and the frames of nn.Modules on its thread that started
before it and end after its start; what has ended does not count, though a slice that outlives it may still
stand in it. Frames that recompute (`: recompute_fn`) tell the pass only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.annotated import find_annotations
from tracewarehouse.ingest.tables.model import PASSES, Owners
from tracewarehouse.ingest.tables.paths import LONGEST, Paths
from tracewarehouse.ingest.tables.search import enclosing, last_reaching
from tracewarehouse.ingest.tables.stretches import stretches

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.annotated import Annotations
    from tracewarehouse.ingest.tables.model import Calls, Flags, Launches, Nesting, Rows, Times
    from tracewarehouse.ingest.tables.stretches import Stretch

_MODULE: Final = "nn.Module: "
_RECOMPUTES: Final = ": recompute_fn"
_CHECKPOINT: Final = "autograd::engine::evaluate_function: CheckpointFunctionBackward"
# The passes that names of operators begin with.
_PREFIXES: Final = (
    ("autograd::engine::evaluate_function: ", "backward"),
    ("Optimizer.", "optimizer"),
    ("enumerate(DataLoader)#", "data"),
)


@dataclass(frozen=True)
class _Line:
    """Calls of a stretch and the owners around them in the order of nesting.

    A call ends at its start, it owns nothing. `pass_` is -1 without one. `place` is the position of a call
    among all calls, -1 of an owner.
    """

    rows: Rows
    lanes: NDArray[np.int64]
    ts_ns: Times
    end_ns: Times
    is_op: Flags
    is_module: Flags
    is_collective: Flags
    pass_: NDArray[np.int8]
    word: NDArray[np.int32]
    place: NDArray[np.int32]


@dataclass(frozen=True)
class _Words:
    """What names tell; the last entry of each stands for no name."""

    module: Flags
    recompute: Flags
    op_pass: NDArray[np.int8]
    frame_pass: NDArray[np.int8]


def find_owners(columns: Columns, nesting: Nesting, calls: Calls, launches: Launches) -> Owners:
    """What each call belongs to: of all calls the operator, of those that launched GPU rows everything."""
    words = _words(columns.words("name"))
    by_place = np.argsort(calls.pre, kind="stable").astype(np.int32)
    launching = np.zeros(len(calls.rows), np.bool_)
    launching[np.searchsorted(calls.rows, launches.runtime[launches.runtime >= 0])] = True
    found = _no_owners(columns, calls, launching)
    number = np.cumsum(launching, dtype=np.int32) - np.int32(1)
    annotations = find_annotations(columns, nesting)
    for stretch in stretches(columns, nesting):
        line = _line(columns, nesting, stretch, _calls_in(calls, by_place, stretch), words)
        asked = np.flatnonzero(line.place >= 0)
        op = _innermost(line, line.is_op)
        found.call_op[line.place[asked]] = _row(line, op[asked])
        asked = asked[launching[line.place[asked]]]
        if asked.size:
            _put_owners(found, number[line.place[asked]], annotations, line, asked, op)
    return found


def _no_owners(columns: Columns, calls: Calls, launching: Flags) -> Owners:
    """Owners to be filled in."""
    rows = calls.rows[launching]
    call_op = np.full(len(calls.rows), -1, np.int32)
    op, top_op, collective, module, annotation, path = np.full((6, len(rows)), -1, np.int32)
    pass_ = np.full(len(rows), PASSES.index("other"), np.int8)
    paths = Paths(columns.words("name"))
    return Owners(call_op, rows, op, top_op, collective, module, annotation, pass_, path, paths)


def _calls_in(calls: Calls, by_place: Rows, stretch: Stretch) -> NDArray[np.int32]:
    """Of each place of the stretch the position of its call, -1 where it is none or was there before."""
    found = np.full(len(stretch.places), -1, np.int32)
    low, high = np.searchsorted(calls.pre, (stretch.low, stretch.high), side="right", sorter=by_place)
    some = by_place[low:high]
    found[calls.pre[some] - 1 - stretch.low + stretch.opened] = some
    return found


def _line(
    columns: Columns, nesting: Nesting, stretch: Stretch, place: NDArray[np.int32], words: _Words
) -> _Line:
    """The calls of a stretch and the owners around any of them."""
    owner = _are_owners(columns, words, nesting.rows[stretch.places]) & _around(nesting, stretch, place >= 0)
    selected = np.flatnonzero((place >= 0) | owner)
    places, place = stretch.places[selected], place[selected]
    rows, is_call = nesting.rows[places], place >= 0
    word, ts = columns.codes("name", rows).codes, columns.ints("ts_ns", rows).values
    end = np.where(is_call, ts, ts + columns.ints("dur_ns", rows).values)
    is_op = columns.is_one_of("category", ("cpu_op",), rows)
    is_module, is_collective = words.module[word] & ~is_call, is_op.copy()
    is_collective[is_op] = columns.flags("has_collective", rows[is_op])
    pass_ = np.where(is_op, words.op_pass[word], words.frame_pass[word])
    pass_[is_call] = -1
    lanes = np.searchsorted(places, nesting.lanes)
    return _Line(rows, lanes, ts, end, is_op, is_module, is_collective, pass_, word, place)


def _are_owners(columns: Columns, words: _Words, rows: Rows) -> Flags:
    """Operators, and frames whose name tells something."""
    category = columns.codes("category", rows)
    frames = np.flatnonzero(category.is_one_of(("python_function",)))
    found = category.is_one_of(("cpu_op",))
    found[frames] |= (words.module | words.recompute)[columns.codes("name", rows[frames]).codes]
    return found


def _around(nesting: Nesting, stretch: Stretch, selected: Flags) -> Flags:
    """Which slices have a chosen one among their descendants, or descendants in the next stretch."""
    up_to = np.cumsum(selected, dtype=np.int32)
    last = nesting.post[stretch.places] - 1 - stretch.low + stretch.opened
    return (last >= len(selected)) | (up_to[np.clip(last, 0, len(selected) - 1)] > up_to)


def _words(names: pa.Array) -> _Words:
    module, recompute = _flags(pc.starts_with(names, _MODULE)), _flags(pc.match_substring(names, _RECOMPUTES))
    frame_pass = _frame_passes(recompute)
    return _Words(np.append(module, False), np.append(recompute, False), _op_passes(names), frame_pass)


def _flags(found: pa.Array) -> Flags:
    return found.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


def _op_passes(words: pa.Array) -> NDArray[np.int8]:
    """The pass that each name of an operator tells, -1 for none; the last entry stands for no name."""
    found = np.full(len(words) + 1, -1, np.int8)
    for prefix, name in _PREFIXES:
        found[:-1][_flags(pc.starts_with(words, prefix))] = PASSES.index(name)
    found[:-1][_flags(pc.equal(words, _CHECKPOINT))] = PASSES.index("recompute")
    return found


def _frame_passes(recompute: Flags) -> NDArray[np.int8]:
    """The same of a Python frame."""
    return np.where(np.append(recompute, False), PASSES.index("recompute"), -1).astype(np.int8)


def _innermost(line: _Line, owner: Flags) -> NDArray[np.int32]:
    """Of each owner of that kind and of each call the innermost such owner around it, -1 for none."""
    found = np.full(len(line.rows), -1, np.int32)
    if not owner.any():
        return found
    selected = np.flatnonzero(owner | (line.place >= 0)).astype(np.int32)
    lanes = np.searchsorted(selected, line.lanes)
    parent = enclosing(line.ts_ns[selected], line.end_ns[selected], lanes)
    found[selected] = np.where(parent >= 0, selected[parent], -1)
    return found


def _row(line: _Line, places: NDArray[np.int32]) -> Rows:
    """The rows at these positions, -1 for none."""
    return np.where(places >= 0, line.rows[places], np.int32(-1)) if len(places) else places


def _put_owners(
    found: Owners,
    number: NDArray[np.int32],
    annotations: Annotations,
    line: _Line,
    asked: NDArray[np.int64],
    inner_op: NDArray[np.int32],
) -> None:
    """Fills in what the calls at the asked positions of the line belong to, at their numbers."""
    op = found.op[number] = _row(line, inner_op[asked])
    found.top_op[number] = _outermost_ops(line, asked, op)
    found.collective[number] = _row(line, _innermost(line, line.is_collective)[asked])
    found.module[number] = _row(line, _innermost(line, line.is_module)[asked])
    note, noted_pass, noted_ns = annotations.around(line.rows[asked], line.ts_ns[asked])
    found.annotation[number] = note
    telling = _innermost(line, line.pass_ >= 0)[asked]
    passes = np.where(op >= 0, np.int8(PASSES.index("forward")), np.int8(PASSES.index("other")))
    told = telling >= 0
    passes[told] = line.pass_[telling[told]]
    by_note = (noted_pass >= 0) & (~told | (noted_ns >= np.where(told, line.ts_ns[telling], 0)))
    passes[by_note] = noted_pass[by_note]
    found.pass_[number] = passes
    found.path[number] = _path_of_calls(line, asked, inner_op, found.paths)


def _outermost_ops(line: _Line, asked: NDArray[Any], op: Rows) -> Rows:
    """The row of the first operator of a call's lane that ends after the call's start, -1 for none.

    Where there is an innermost one, the first is before the call too.
    """
    found = np.full(len(asked), -1, np.int32)
    ops = np.flatnonzero(line.is_op)
    lane = np.searchsorted(line.lanes, asked, side="right") - 1
    by_lane = np.argsort(lane, kind="stable")
    for calls in np.split(by_lane, np.flatnonzero(np.diff(lane[by_lane])) + 1):
        if not calls.size:
            continue
        low, high = np.searchsorted(ops, line.lanes[lane[calls[0]] : lane[calls[0]] + 2])
        latest = np.maximum.accumulate(line.end_ns[ops[low:high]])
        inside = calls[op[calls] >= 0]
        first = np.searchsorted(latest, line.ts_ns[asked[inside]], side="right")
        found[inside] = line.rows[ops[low + first]]
    return found


def _path_of_calls(
    line: _Line, asked: NDArray[np.int64], inner_op: NDArray[np.int32], paths: Paths
) -> NDArray[np.int32]:
    """The path of operators and modules that each call belongs to, -1 for none."""
    named = line.is_op | line.is_module
    parent = _innermost(line, named) if (line.is_module & ~line.is_op).any() else inner_op
    nodes = np.flatnonzero(named)
    place = np.full(len(named) + 1, -1, np.int32)  # the last stands for no parent
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    above, around = place[parent[nodes]], place[parent[asked]]
    found = np.append(paths.of_tree(above, line.word[nodes]), np.int32(-1))[around]
    earliest = np.append(_earliest_ends(above, line.end_ns[nodes]), np.iinfo(np.int64).max)[around]
    over = np.flatnonzero(earliest <= line.ts_ns[asked])
    if over.size:
        found[over] = _paths_of_open(line, nodes, asked[over], paths)
    return found


def _earliest_ends(parent: NDArray[np.int32], ends: Times) -> Times:
    """The earliest end among each node and all around it; where nothing crosses, the node's own."""
    inner = parent >= 0
    if not (inner & (ends > ends[parent])).any():
        return ends
    earliest, above = ends.copy(), parent.copy()
    active = np.flatnonzero(inner)
    while active.size:
        by_way_of = above[active]
        earliest[active] = np.minimum(earliest[active], earliest[by_way_of])
        above[active] = above[by_way_of]
        active = active[above[active] >= 0]
    return earliest


def _paths_of_open(line: _Line, nodes: NDArray[Any], calls: NDArray[Any], paths: Paths) -> NDArray[np.int32]:
    """The paths of calls around some of whose owners other slices reach: what has ended is left out."""
    ends, times = line.end_ns[nodes], line.ts_ns[calls]
    first = np.searchsorted(nodes, line.lanes[np.searchsorted(line.lanes, calls, side="right") - 1])
    at = np.searchsorted(nodes, calls)
    open_: list[NDArray[np.int32]] = []
    while len(open_) <= LONGEST:
        at = last_reaching(ends, at, times)
        at = np.where(at >= first, at, -1)
        if not (at >= 0).any():
            break
        open_.append(np.where(at >= 0, line.word[nodes[at]], -1).astype(np.int32))
        at = np.maximum(at, 0)
    rows = np.ascontiguousarray(np.array(open_[::-1], np.int32).reshape(len(open_), len(calls)).T)
    known: dict[bytes, int] = {}
    found = np.empty(len(calls), np.int32)
    for call, names in enumerate(rows):
        key = names.tobytes()
        if key not in known:
            known[key] = paths.of_names(names.tolist())
        found[call] = known[key]
    return found
