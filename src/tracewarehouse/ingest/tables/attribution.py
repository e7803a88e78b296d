"""Operators, module, annotations and training phase of each call.

A call is attributed to the operators (category cpu_op) and the nn.Module frames on its thread that started
before it and end after its start. A slice that has ended does not count, even if it is an ancestor because
another slice outlives it. Recomputation frames (`: recompute_fn`) only determine the pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.ingest.tables.model import (
    CHECKPOINT_OPERATOR,
    ENGINE_OPERATOR,
    LOADER,
    LONGEST,
    MODULE_FRAME,
    PASSES,
    RECOMPUTE_FRAME,
    Attribution,
    Paths,
    enclosing,
    flags,
    last_reaching,
    latest_on_thread,
    start_and_end,
)
from tracewarehouse.ingest.tables.nesting import intervals

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Calls, Flags, Launches, Nesting, Rows, Small, Times
    from tracewarehouse.ingest.tables.nesting import NestingInterval


_ANNOTATION_PASSES: Final = (("Optimizer.", "optimizer"), (LOADER, "data"))


class Annotations(Struct, frozen=True):
    """Annotations in nesting order, with the lane of each and the pass that its name implies, -1 for none."""

    columns: Columns
    rows: Rows
    lane: NDArray[np.int64]
    start_ns: Times
    end_ns: Times
    pass_: Small

    def enclosing(self, calls: Rows, ts: Times) -> tuple[Rows, Small, Times]:
        """The innermost annotation of each call, and pass and start of the innermost one that implies a pass.

        All are -1 for none.
        """
        if not self.rows.size or not len(calls):
            none = np.full(len(calls), -1, np.int32)
            return none, none.astype(np.int8), none.astype(np.int64)
        latest = latest_on_thread(self.columns, self.rows, self.start_ns, calls, ts)
        inner = self._open(np.arange(len(self.rows)), latest, ts)
        with_pass = np.flatnonzero(self.pass_ >= 0)
        pass_ = np.append(with_pass, -1)[self._open(with_pass, latest, ts)]
        has_pass = pass_ >= 0
        return (
            np.where(inner >= 0, self.rows[inner], np.int32(-1)),
            np.where(has_pass, self.pass_[pass_], np.int8(-1)),
            np.where(has_pass, self.start_ns[pass_], -1),
        )

    def _open(self, some: NDArray[np.int64], latest: NDArray[np.int64], ts: Times) -> NDArray[np.int64]:
        """The index in `some` of the last annotation up to `latest` that ends after the time; -1 for none."""
        found = last_reaching(self.end_ns[some], np.searchsorted(some, latest, side="right"), ts)
        same = (found >= 0) & (latest >= 0)
        same[same] = self.lane[some[found[same]]] == self.lane[latest[same]]
        return np.where(same, found, -1)


def find_annotations(columns: Columns, nesting: Nesting) -> Annotations:
    """All annotations on host threads."""
    is_annotation = columns.is_one_of("category", ("user_annotation",), nesting.rows)
    positions = np.flatnonzero(is_annotation)
    rows = nesting.rows[positions]
    lane = np.searchsorted(nesting.lanes, positions, side="right")
    names = columns.codes("name", rows)
    pass_ = _implied_passes(names.words, _ANNOTATION_PASSES)[names.codes]
    return Annotations(columns, rows, lane, *start_and_end(columns, rows), pass_)


def _implied_passes(words: pa.Array, prefixes: Iterable[tuple[str, str]]) -> Small:
    """The pass that each name implies by its prefix, -1 for none; the last entry is for no name."""
    found = np.full(len(words) + 1, -1, np.int8)
    for prefix, name in prefixes:
        found[:-1][flags(pc.starts_with(words, prefix))] = PASSES.index(name)
    return found


# Prefixes of operator names that imply a pass.
_OPERATOR_PASSES: Final = (
    (ENGINE_OPERATOR, "backward"),
    ("torch.distributed.ddp.reducer::", "backward"),
    *_ANNOTATION_PASSES,
)
# Number of calls below crossing slices whose paths are found together: with the longest paths, 130 MB.
_SLAB: Final = 16_384


class _ScopedCalls(Struct, frozen=True):
    """Calls of an interval and the scopes (operators, module frames) that enclose them, in nesting order.

    A call ends at its start, as it encloses nothing. `pass_` is -1 for none. `call` is the index of a call
    among all calls, -1 for a scope.
    """

    rows: Rows
    lanes: NDArray[np.int64]
    ts_ns: Times
    end_ns: Times
    is_op: Flags
    is_module: Flags
    is_collective: Flags
    pass_: Small
    word: NDArray[np.int32]
    call: NDArray[np.int32]


class _Words(Struct, frozen=True):
    """What each name implies; the last entry is for rows without a name."""

    module: Flags
    recompute: Flags
    op_pass: Small
    frame_pass: Small


def attribute_calls(columns: Columns, nesting: Nesting, calls: Calls, launches: Launches) -> Attribution:
    """The operator of every call, and the full attribution of calls that launched GPU activities."""
    words = _words(columns.words("name"))
    by_position = np.argsort(calls.pre, kind="stable").astype(np.int32)
    launching = np.zeros(len(calls.rows), np.bool_)
    launching[np.searchsorted(calls.rows, launches.runtime[launches.runtime >= 0])] = True
    # An attribution to be filled in.
    rows = calls.rows[launching]
    call_op = np.full(len(calls.rows), -1, np.int32)
    op, top_op, collective, module, annotation, path = np.full((6, len(rows)), -1, np.int32)
    pass_ = np.full(len(rows), PASSES.index("other"), np.int8)
    paths = Paths(columns.words("name"))
    found = Attribution(call_op, rows, op, top_op, collective, module, annotation, pass_, path, paths)
    number = np.cumsum(launching, dtype=np.int32) - np.int32(1)
    annotations = find_annotations(columns, nesting)
    for interval in intervals(columns, nesting):
        scoped = _scoped_calls(columns, nesting, interval, _calls_in(calls, by_position, interval), words)
        wanted = np.flatnonzero(scoped.call >= 0)
        inner_op = _innermost(scoped, scoped.is_op)
        found.call_op[scoped.call[wanted]] = _row(scoped, inner_op[wanted])
        wanted = wanted[launching[scoped.call[wanted]]]
        if wanted.size:
            _put_attribution(found, number[scoped.call[wanted]], annotations, scoped, wanted, inner_op)
    return found


def _calls_in(calls: Calls, by_position: Rows, interval: NestingInterval) -> NDArray[np.int32]:
    """The index of the call at each position of the interval; -1 for none, or if it was opened before."""
    found = np.full(len(interval.positions), -1, np.int32)
    low, high = np.searchsorted(calls.pre, (interval.low, interval.high), side="right", sorter=by_position)
    some = by_position[low:high]
    found[calls.pre[some] - 1 - interval.low + interval.opened] = some
    return found


def _scoped_calls(
    columns: Columns, nesting: Nesting, interval: NestingInterval, call: NDArray[np.int32], words: _Words
) -> _ScopedCalls:
    """The calls of an interval and the scopes that enclose any of them."""
    scope = _are_scopes(columns, words, nesting.rows[interval.positions]) & _encloses_selected(
        nesting, interval, call >= 0
    )
    selected = np.flatnonzero((call >= 0) | scope)
    positions, call = interval.positions[selected], call[selected]
    rows, is_call = nesting.rows[positions], call >= 0
    word, (ts, end) = columns.codes("name", rows).codes, start_and_end(columns, rows)
    end = np.where(is_call, ts, end)
    is_op = columns.is_one_of("category", ("cpu_op",), rows)
    is_module, is_collective = words.module[word] & ~is_call, is_op.copy()
    is_collective[is_op] = columns.flags("has_collective", rows[is_op])
    pass_ = np.where(is_op, words.op_pass[word], words.frame_pass[word])
    pass_[is_call] = -1
    lanes = np.searchsorted(positions, nesting.lanes)
    return _ScopedCalls(rows, lanes, ts, end, is_op, is_module, is_collective, pass_, word, call)


def _are_scopes(columns: Columns, words: _Words, rows: Rows) -> Flags:
    """Whether each row is an operator, or a frame whose name has a meaning."""
    category = columns.codes("category", rows)
    frames = np.flatnonzero(category.is_one_of(("python_function",)))
    found = category.is_one_of(("cpu_op",))
    found[frames] |= (words.module | words.recompute)[columns.codes("name", rows[frames]).codes]
    return found


def _encloses_selected(nesting: Nesting, interval: NestingInterval, selected: Flags) -> Flags:
    """Whether each slice has a selected descendant, or descendants in the next interval."""
    up_to = np.cumsum(selected, dtype=np.int32)
    last = nesting.post[interval.positions] - 1 - interval.low + interval.opened
    return (last >= len(selected)) | (up_to[np.clip(last, 0, len(selected) - 1)] > up_to)


def _words(names: pa.Array) -> _Words:
    module = np.append(flags(pc.starts_with(names, MODULE_FRAME)), False)
    recompute = np.append(flags(pc.match_substring(names, RECOMPUTE_FRAME)), False)
    op_pass = _implied_passes(names, _OPERATOR_PASSES)
    op_pass[:-1][flags(pc.equal(names, CHECKPOINT_OPERATOR))] = PASSES.index("recompute")
    frame_pass = np.where(recompute, PASSES.index("recompute"), -1).astype(np.int8)
    return _Words(module, recompute, op_pass, frame_pass)


def _innermost(scoped: _ScopedCalls, scope: Flags) -> NDArray[np.int32]:
    """For each selected scope and each call the innermost selected scope that encloses it, -1 for none."""
    found = np.full(len(scoped.rows), -1, np.int32)
    if not scope.any():
        return found
    selected = np.flatnonzero(scope | (scoped.call >= 0)).astype(np.int32)
    lanes = np.searchsorted(selected, scoped.lanes)
    parent = enclosing(scoped.ts_ns[selected], scoped.end_ns[selected], lanes)
    found[selected] = np.where(parent >= 0, selected[parent], -1)
    return found


def _row(scoped: _ScopedCalls, positions: NDArray[np.int32]) -> Rows:
    """The rows at these positions, -1 for -1."""
    return np.where(positions >= 0, scoped.rows[positions], np.int32(-1)) if len(positions) else positions


def _put_attribution(
    found: Attribution,
    number: NDArray[np.int32],
    annotations: Annotations,
    scoped: _ScopedCalls,
    wanted: NDArray[np.int64],
    inner_op: NDArray[np.int32],
) -> None:
    """Fills in the attribution of the calls at these positions, each at its number."""
    op = found.op[number] = _row(scoped, inner_op[wanted])
    found.top_op[number] = _outermost_ops(scoped, wanted, op)
    found.collective[number] = _row(scoped, _innermost(scoped, scoped.is_collective)[wanted])
    found.module[number] = _row(scoped, _innermost(scoped, scoped.is_module)[wanted])
    annotation, annotation_pass, annotation_ns = annotations.enclosing(
        scoped.rows[wanted], scoped.ts_ns[wanted]
    )
    found.annotation[number] = annotation
    with_pass = _innermost(scoped, scoped.pass_ >= 0)[wanted]
    passes = np.where(op >= 0, np.int8(PASSES.index("forward")), np.int8(PASSES.index("other")))
    has_pass = with_pass >= 0
    passes[has_pass] = scoped.pass_[with_pass[has_pass]]
    by_annotation = (annotation_pass >= 0) & (
        ~has_pass | (annotation_ns >= np.where(has_pass, scoped.ts_ns[with_pass], 0))
    )
    passes[by_annotation] = annotation_pass[by_annotation]
    found.pass_[number] = passes
    found.path[number] = _path_of_calls(scoped, wanted, inner_op, found.paths)


def _outermost_ops(scoped: _ScopedCalls, wanted: NDArray[Any], op: Rows) -> Rows:
    """The row of the first operator in a call's lane that ends after the call's start, -1 for none.

    If there is an innermost operator, the first one starts before the call too.
    """
    found = np.full(len(wanted), -1, np.int32)
    ops = np.flatnonzero(scoped.is_op)
    lane = np.searchsorted(scoped.lanes, wanted, side="right") - 1
    by_lane = np.argsort(lane, kind="stable")
    for calls in np.split(by_lane, np.flatnonzero(np.diff(lane[by_lane])) + 1):
        if not calls.size:
            continue
        low, high = np.searchsorted(ops, scoped.lanes[lane[calls[0]] : lane[calls[0]] + 2])
        latest = np.maximum.accumulate(scoped.end_ns[ops[low:high]])
        inside = calls[op[calls] >= 0]
        first = np.searchsorted(latest, scoped.ts_ns[wanted[inside]], side="right")
        found[inside] = scoped.rows[ops[low + first]]
    return found


def _path_of_calls(
    scoped: _ScopedCalls, wanted: NDArray[np.int64], inner_op: NDArray[np.int32], paths: Paths
) -> NDArray[np.int32]:
    """The path of operators and modules that enclose each call, -1 for none."""
    named = scoped.is_op | scoped.is_module
    parent = _innermost(scoped, named) if (scoped.is_module & ~scoped.is_op).any() else inner_op
    nodes = np.flatnonzero(named)
    node_of = np.full(len(named) + 1, -1, np.int32)  # the last entry is for no parent
    node_of[nodes] = np.arange(len(nodes), dtype=np.int32)
    above, parent_node = node_of[parent[nodes]], node_of[parent[wanted]]
    found = np.append(paths.of_tree(above, scoped.word[nodes]), np.int32(-1))[parent_node]
    earliest = np.append(_earliest_ends(above, scoped.end_ns[nodes]), np.iinfo(np.int64).max)[parent_node]
    with_ended = np.flatnonzero(earliest <= scoped.ts_ns[wanted])
    if with_ended.size:
        found[with_ended] = _paths_of_open(scoped, nodes, wanted[with_ended], paths)
    return found


def _earliest_ends(parent: NDArray[np.int32], ends: Times) -> Times:
    """The earliest end among each node and its ancestors; the node's own if no slices cross."""
    inner = parent >= 0
    if not (inner & (ends > ends[parent])).any():
        return ends
    earliest, above = ends.copy(), parent.copy()
    active = np.flatnonzero(inner)
    while active.size:
        ancestor = above[active]
        earliest[active] = np.minimum(earliest[active], earliest[ancestor])
        above[active] = above[ancestor]
        active = active[above[active] >= 0]
    return earliest


def _paths_of_open(
    scoped: _ScopedCalls, nodes: NDArray[Any], calls: NDArray[Any], paths: Paths
) -> NDArray[np.int32]:
    """The paths of calls with an ancestor that has already ended; such ancestors are excluded."""
    nodes = nodes[scoped.word[nodes] >= 0]  # a slice without a name adds nothing to a path
    starts = range(0, len(calls), _SLAB)
    return np.concatenate([_open_paths(scoped, nodes, calls[at : at + _SLAB], paths) for at in starts])


def _open_paths(
    scoped: _ScopedCalls, nodes: NDArray[Any], calls: NDArray[Any], paths: Paths
) -> NDArray[np.int32]:
    """Like `_paths_of_open`, of a few calls: each needs up to 4 bytes for every name of a path, twice."""
    ends, times = scoped.end_ns[nodes], scoped.ts_ns[calls]
    first = np.searchsorted(nodes, scoped.lanes[np.searchsorted(scoped.lanes, calls, side="right") - 1])
    at = np.searchsorted(nodes, calls)
    open_names: list[NDArray[np.int32]] = []
    while len(open_names) <= LONGEST:
        at = last_reaching(ends, at, times)
        at = np.where(at >= first, at, -1)
        if not (at >= 0).any():
            break
        open_names.append(np.where(at >= 0, scoped.word[nodes[at]], -1).astype(np.int32))
        at = np.maximum(at, 0)
    rows = np.ascontiguousarray(np.array(open_names[::-1], np.int32).reshape(len(open_names), len(calls)).T)
    known: dict[bytes, int] = {}
    found = np.empty(len(calls), np.int32)
    for call, names in enumerate(rows):
        key = names.tobytes()
        if key not in known:
            known[key] = paths.of_names(names.tolist())
        found[call] = known[key]
    return found


def passes(columns: Columns, nesting: Nesting, positions: NDArray[np.int64]) -> Small:
    """The pass (an index into `PASSES`) of operators at ascending positions in nesting order.

    As for calls: that of the innermost operator, frame or annotation around it, or itself, that implies one.
    """
    rows = nesting.rows[positions]
    words = _words(columns.words("name"))
    name, category = columns.codes("name", nesting.rows).codes, columns.codes("category", nesting.rows)
    implied = np.where(category.is_one_of(("cpu_op",)), words.op_pass[name], np.int8(-1))
    frames = np.flatnonzero(category.is_one_of(("python_function",)))
    implied[frames] = words.frame_pass[name[frames]]
    scopes = np.flatnonzero(implied >= 0)
    before = np.searchsorted(scopes, positions, side="right")
    found = last_reaching(nesting.post[scopes].astype(np.int64), before, positions)
    has_pass = found >= 0
    scope = scopes[found[has_pass]]
    result = np.full(len(positions), PASSES.index("forward"), np.int8)
    result[has_pass] = implied[scope]
    scope_ns = np.full(len(positions), np.iinfo(np.int64).min)
    scope_ns[has_pass] = columns.ints("ts_ns", nesting.rows[scope]).values
    start = columns.ints("ts_ns", rows).values
    _, annotation_pass, annotation_ns = find_annotations(columns, nesting).enclosing(rows, start)
    nearer = (annotation_pass >= 0) & (annotation_ns >= scope_ns)
    result[nearer] = annotation_pass[nearer]
    return result
