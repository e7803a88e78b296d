"""Table `kernel_modules`: the module that each GPU activity belongs to.

That is the innermost module that encloses the launch. If an operator of the autograd engine lies between the
two, its sequence number leads to an operator of forward, and the module that encloses this one counts: of the
operators with the number, on the thread that ran forward, the last to start by the start of the engine's
operator; of several with that start the outermost. Communication has no module, and neither has the gradient
accumulation of a parameter. The table is empty without calls of modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.kernels import call_indexes, has_kind
from tracewarehouse.ingest.tables.model import ENGINE_OPERATOR, PASSES
from tracewarehouse.ingest.tables.nesting import OPERATOR_CATEGORY
from tracewarehouse.ingest.tables.rows import bigint_column, encoded_texts, id_column
from tracewarehouse.ingest.tables.search import last_before, last_reaching

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Attribution, Calls, Flags, Launches, Nesting, Rows
    from tracewarehouse.ingest.tables.modules import ModuleFrames, Texts

    Positions = NDArray[np.int64]

ACCUMULATION: Final = "(gradient accumulation)"
_ACCUMULATE: Final = "AccumulateGrad"
_HOW: Final = ("enclosing", "sequence", "accumulation")
_ENCLOSING, _SEQUENCE, _ACCUMULATED = range(3)
_KERNEL_PASSES: Final = (*PASSES, "communication")
# Operators that carry the number of an operator of forward, but are part of backward.
_BACKWARD: Final = r"^autograd::engine|Backward\d*$|^torch::autograd::"
# Threads with the most numbered operators: others are not searched for operators of forward.
_MOST_LANES: Final = 16


@dataclass(frozen=True)
class _CallModules:
    """The module of each call that launched GPU activities: index of its frame, row of the forward operator.

    Both are -1 for none; `how` is an index into `_HOW`, -1 for none.
    """

    frame: Positions
    forward: Rows
    how: NDArray[np.int8]


def kernel_modules(
    columns: Columns,
    rules: Rules,
    nesting: Nesting,
    calls: Calls,
    launches: Launches,
    attribution: Attribution,
    frames: ModuleFrames,
) -> pa.Table:
    """The table, a row per GPU activity, in row order."""
    call = call_indexes(attribution, launches.runtime)
    communication = has_kind(columns, rules, launches.rows, "communication")
    found = _modules_of_calls(columns, nesting, calls, attribution, frames)
    call = np.where(communication, -1, call)
    frame, how = np.append(found.frame, -1)[call], np.append(found.how, np.int8(-1))[call]
    pass_ = np.append(attribution.pass_, np.int8(PASSES.index("other")))[
        call_indexes(attribution, launches.runtime)
    ]
    pass_[communication] = _KERNEL_PASSES.index("communication")
    return pa.table(
        {
            "kernel_id": bigint_column(launches.rows),
            "module_id": id_column(np.append(frames.rows, np.int32(-1))[frame]),
            "forward_id": id_column(np.append(found.forward, np.int32(-1))[call]),
            "module_path": _with_accumulation(frames.module_path, frame, how),
            "class_path": _with_accumulation(frames.class_path, frame, how),
            "pass": encoded_texts(pass_, _KERNEL_PASSES),
            "how": encoded_texts(how, _HOW),
        }
    )


def _with_accumulation(texts: Texts, frame: Positions, how: NDArray[np.int8]) -> pa.Array:
    """The path of each activity's module, or the name of gradient accumulation."""
    words = pa.concat_arrays([texts.words, pa.array([ACCUMULATION])])
    codes = np.append(texts.codes, np.int32(-1))[frame]
    return encoded_texts(np.where(how == _ACCUMULATED, np.int32(len(words) - 1), codes), words)


def _modules_of_calls(
    columns: Columns, nesting: Nesting, calls: Calls, attribution: Attribution, frames: ModuleFrames
) -> _CallModules:
    """The module of each launching call: by the enclosing frame, else by what the engine's operator says."""
    pre = calls.pre[np.searchsorted(calls.rows, attribution.calls)].astype(np.int64)
    frame = _enclosing(frames, attribution.module, pre)
    found = _CallModules(
        frame, np.full(len(pre), -1, np.int32), np.where(frame >= 0, _ENCLOSING, -1).astype(np.int8)
    )
    engine = _engine_operators(columns, nesting)
    node = last_reaching(nesting.post[engine].astype(np.int64), np.searchsorted(engine + 1, pre), pre, True)
    inside = np.flatnonzero(node >= 0)
    inside = inside[engine[node[inside]] + 1 > np.append(frames.pre, -1)[frame[inside]]]
    if inside.size:
        used, number = np.unique(node[inside], return_inverse=True)
        ruled = _modules_of_engine(columns, nesting, nesting.rows[engine[used]], frames)
        known = (ruled.how == _ACCUMULATED) | (ruled.forward >= 0)
        inside, number = inside[known[number]], number[known[number]]
        for ours, theirs in zip(vars(found).values(), vars(ruled).values(), strict=True):
            ours[inside] = theirs[number]
    return found


def _modules_of_engine(
    columns: Columns, nesting: Nesting, engine: Rows, frames: ModuleFrames
) -> _CallModules:
    """The module of each operator of the engine, by its operator of forward."""
    accumulates = columns.where("name", _ends_with(columns.words("name"), _ACCUMULATE), engine)
    forward = np.where(accumulates, -1, _forward_operators(columns, nesting, engine))
    frame = frames.innermost(np.maximum(forward, 0) + 1)
    frame = np.where((forward >= 0) & (frame >= 0) & ~frames.recompute[frame], frame, -1)
    how = np.where(accumulates, _ACCUMULATED, np.where(frame >= 0, _SEQUENCE, -1))
    return _CallModules(frame, np.append(nesting.rows, np.int32(-1))[forward], how.astype(np.int8))


def _enclosing(frames: ModuleFrames, module: Rows, pre: Positions) -> Positions:
    """The frame of each call's innermost module, -1 if a recomputation lies between the two."""
    frame, innermost = frames.of_rows(module), frames.innermost(pre)
    cut = (innermost > frame) & frames.recompute[innermost]
    return np.where(cut, -1, frame)


def _engine_operators(columns: Columns, nesting: Nesting) -> Positions:
    """The positions in nesting order of operators of the autograd engine."""
    words = columns.words("name")
    named = columns.where("name", _flags(pc.starts_with(words, ENGINE_OPERATOR)), nesting.rows)
    positions = np.flatnonzero(named)
    return positions[columns.is_one_of("category", (OPERATOR_CATEGORY,), nesting.rows[positions])]


def _forward_operators(columns: Columns, nesting: Nesting, engine: Rows) -> Positions:
    """The position of the operator of forward of each operator of the engine, -1 for none."""
    number, ts = columns.ints("sequence_number", engine), columns.ints("ts_ns", engine).values
    candidates = _numbered(columns, nesting)
    if not candidates.size:
        return np.full(len(engine), -1, np.int64)
    lane = np.searchsorted(nesting.lanes, candidates, side="right") - 1
    lanes, count = np.unique(lane, return_counts=True)
    found = np.array(
        [
            _last_on_lane(columns, nesting, candidates[lane == each], number.values, ts)
            for each in lanes[np.argsort(-count, kind="stable")[:_MOST_LANES]].tolist()
        ]
    )
    found[:, ~number.valid | (number.values < 0)] = -1
    starts = columns.ints("ts_ns", nesting.rows[np.maximum(found, 0)]).values
    starts = np.where(found >= 0, starts, np.iinfo(np.int64).min)
    threads = columns.ints("forward_thread", engine)
    lane_of = _forward_lanes(found, starts, np.where(threads.valid, threads.values, -1))
    chosen: Positions = found[lane_of, np.arange(len(engine))]
    return chosen


def _numbered(columns: Columns, nesting: Nesting) -> Positions:
    """The positions of operators with a sequence number that are not part of backward."""
    if not columns.has("sequence_number"):
        return np.empty(0, np.int64)
    positions = np.flatnonzero(columns.is_one_of("category", (OPERATOR_CATEGORY,), nesting.rows))
    rows = nesting.rows[positions]
    numbers = columns.ints("sequence_number", rows)
    backward = _flags(pc.match_substring_regex(columns.words("name"), _BACKWARD))
    return positions[numbers.valid & (numbers.values >= 0) & ~columns.where("name", backward, rows)]


def _last_on_lane(
    columns: Columns, nesting: Nesting, positions: Positions, number: Positions, ts: Positions
) -> Positions:
    """The last of the operators with each number that starts by the time, the outermost of a start."""
    positions = positions[::-1]  # of equal starts the last in this order counts
    rows = nesting.rows[positions]
    numbers, starts = columns.ints("sequence_number", rows).values, columns.ints("ts_ns", rows).values
    return np.append(positions, -1)[last_before(numbers, starts, number, ts)]


def _forward_lanes(found: Positions, starts: Positions, thread: Positions) -> Positions:
    """The lane (row of `found`) of each operator of the engine.

    The profiler numbers threads in its own way: the lane of a number is the one with most of its operators,
    of equal ones the one that holds most of the latest. Without a thread, the latest operator counts.
    """
    latest = starts.argmax(axis=0)
    lane: Positions = latest.copy()
    for each in np.unique(thread[thread >= 0]).tolist():
        of_thread = thread == each
        held = (found[:, of_thread] >= 0).sum(axis=1)
        last = np.bincount(latest[of_thread], minlength=len(found))
        lane[of_thread] = np.lexsort((last, held))[-1]
    return lane


def _ends_with(words: pa.Array, suffix: str) -> Flags:
    return _flags(pc.ends_with(words, suffix))


def _flags(found: Any) -> Flags:
    return found.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]
