"""Tables `modules`, the calls of modules, and `kernel_modules`, the module of each GPU activity.

The path of a call has the modules that enclose it, outermost first. Below a frame in which checkpointing
runs a forward again (`recompute_fn`, or its operator in backward), the path is cut, and continues the one
that the same instance had when it last ran outside of recomputation.

The module of a GPU activity is the innermost one that encloses its launch. If an operator of the autograd
engine lies between the two, its sequence number leads to an operator of forward, and the module that encloses
this one counts: of the operators with the number, on the thread that ran forward, the last to start by the
start of the engine's operator; of several with that start the outermost. Communication has no module, and
neither has the gradient accumulation of a parameter. A kernel of a graph that PyTorch has annotated belongs
to what its argument `annotation` names. Without calls of modules, only those are in the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse.ingest.tables.kernels import KINDS, call_indexes
from tracewarehouse.ingest.tables.model import (
    CHECKPOINT_OPERATOR,
    ENGINE_OPERATOR,
    MODULE_FRAME,
    PASSES,
    RECOMPUTE_FRAME,
    Paths,
    bigint_column,
    encoded_texts,
    flags,
    id_column,
    last_before,
    last_reaching,
    levels,
    selected_columns,
    text_codes,
)
from tracewarehouse.ingest.tables.nesting import OPERATOR_CATEGORY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.kernels import Classes
    from tracewarehouse.ingest.tables.model import (
        Attribution,
        Calls,
        Flags,
        Launches,
        Nesting,
        Numbers,
        Positions,
        Rows,
        Small,
    )


_INSTANCE: Final = r"_\d+$"


class Texts(Struct, frozen=True):
    """Texts, and the index of each frame's text."""

    codes: NDArray[np.int32]
    words: pa.Array

    def column(self, frames: Positions) -> pa.Array:
        """The text of each frame, null for -1."""
        return encoded_texts(np.append(self.codes, np.int32(-1))[frames], self.words)


class ModuleFrames(Struct, frozen=True):
    """Calls of modules, and frames of recomputation, in nesting order.

    Other arrays and methods name a frame by its index, -1 for none. `recompute`: the frame runs a forward
    again; `repeated`: it lies inside of such a frame; `parent`: the enclosing call in the path.
    """

    rows: Rows
    pre: Numbers
    post: Numbers
    recompute: Flags
    repeated: Flags
    parent: NDArray[np.int32]
    name: Texts
    class_name: Texts
    module_path: Texts
    class_path: Texts

    def innermost(self, pre: Numbers) -> Numbers:
        """The innermost frame that encloses each position in nesting order."""
        return last_reaching(self.post, np.searchsorted(self.pre, pre, side="right"), pre, inclusive=True)

    def of_rows(self, rows: Rows) -> Numbers:
        """The frame of each row; -1 for -1."""
        order = np.argsort(self.rows)
        found = order[np.searchsorted(self.rows[order], np.maximum(rows, self.rows.min()))]
        return np.where(rows >= 0, found, -1)


def find_modules(columns: Columns, nesting: Nesting) -> ModuleFrames | None:
    """All calls of modules; None if there are none."""
    words = columns.words("name")
    module = flags(pc.starts_with(words, MODULE_FRAME))
    recompute = flags(
        pc.or_(pc.match_substring(words, RECOMPUTE_FRAME), pc.equal(words, CHECKPOINT_OPERATOR))
    )
    if not module.any():
        return None
    positions = np.flatnonzero(columns.where("name", module | recompute, nesting.rows))
    rows = nesting.rows[positions]
    category = columns.codes("category", rows)
    is_op, is_frame = category.is_one_of((OPERATOR_CATEGORY,)), category.is_one_of(("python_function",))
    is_module = columns.where("name", module, rows) & (is_op | is_frame)
    own_op = columns.is_one_of("name", (CHECKPOINT_OPERATOR,), rows)
    selected = is_module | np.where(own_op, is_op, is_frame)
    if not is_module.any():
        return None
    return _found(columns, nesting, positions[selected], ~is_module[selected])


def module_table(columns: Columns, frames: ModuleFrames) -> pa.Table:
    """Table `modules`, in row order."""
    calls = np.flatnonzero(~frames.recompute)
    calls = calls[np.argsort(frames.rows[calls])]
    rows = frames.rows[calls]
    return pa.table(
        {
            "event_id": bigint_column(rows),
            "name": frames.name.column(calls),
            "class": frames.class_name.column(calls),
            "module_path": frames.module_path.column(calls),
            "class_path": frames.class_path.column(calls),
            "parent_id": id_column(np.append(frames.rows, np.int32(-1))[frames.parent[calls]]),
            "depth": bigint_column(levels(frames.parent)[calls]),
            "recompute": pa.array(frames.repeated[calls]),
            **selected_columns(columns, rows, {"step": "step", "ts_ns": "ts_ns", "host_ns": "dur_ns"}),
        }
    )


def _found(columns: Columns, nesting: Nesting, positions: NDArray[Any], recompute: Flags) -> ModuleFrames:
    """The frames at these positions in nesting order, with their paths."""
    rows, pre, post = nesting.rows[positions], positions + 1, nesting.post[positions].astype(np.int64)
    names = columns.codes("name", rows)
    above = last_reaching(post, np.arange(len(rows)), pre, inclusive=True)
    # Whether each frame lies inside a recomputation.
    repeated = np.zeros(len(above), np.bool_)
    ancestor = above
    while recompute.any() and (ancestor >= 0).any():
        repeated |= (ancestor >= 0) & recompute[ancestor]
        ancestor = np.where(ancestor >= 0, above[ancestor], -1)
    keys = columns.apart(names.codes, rows)
    parent = _continued(above, recompute, repeated, keys, columns.ints("ts_ns", rows).values)
    used, code = np.unique(names.codes, return_inverse=True)
    frame = names.words.take(pa.array(used)).cast(pa.string())
    name = pc.replace_substring_regex(frame, f"^{MODULE_FRAME}", "")
    codes: NDArray[np.int32] = np.where(recompute, -1, code).astype(np.int32)
    # Instances of a class have one word: Parquet stores texts instead of a dictionary that repeats a word.
    class_of, classes = text_codes(pc.replace_substring_regex(name, _INSTANCE, ""))
    class_codes = np.append(class_of, np.int32(-1))[codes]
    return ModuleFrames(
        rows,
        pre,
        post,
        recompute,
        repeated,
        parent,
        Texts(codes, name),
        Texts(class_codes, classes),
        _paths(parent, codes, name),
        _paths(parent, class_codes, classes),
    )


def _continued(
    above: Positions, recompute: Flags, repeated: Flags, name: NDArray[np.integer[Any]], ts: Numbers
) -> NDArray[np.int32]:
    """The parent of each frame; right below a recomputation, that of the last call outside of one."""
    parent = above.astype(np.int32)
    cut = np.flatnonzero((above >= 0) & recompute[above])
    if cut.size:
        first = np.flatnonzero(~repeated & ~recompute)
        found = last_before(name[first], ts[first], name[cut], ts[cut])
        parent[cut] = np.where(found >= 0, above[np.append(first, -1)[found]], -1)
    return parent


def _paths(parent: NDArray[np.int32], codes: NDArray[np.int32], words: pa.Array) -> Texts:
    """The path of each frame, of the words of its ancestors and its own."""
    paths, order = Paths(words), np.argsort(levels(parent), kind="stable")
    place = np.empty(len(order) + 1, np.int32)
    place[order], place[-1] = np.arange(len(order)), -1
    found = np.empty(len(order), np.int32)
    found[order] = paths.of_tree(place[parent[order]], codes[order])
    return Texts(found, pa.array(paths.texts(range(len(paths))), pa.string()))


ACCUMULATION: Final = "(gradient accumulation)"
_ACCUMULATE: Final = "AccumulateGrad"
_HOW: Final = ("enclosing", "sequence", "accumulation", "annotation")
_ENCLOSING, _SEQUENCE, _ACCUMULATED, _ANNOTATED = range(4)
_KERNEL_PASSES: Final = (*PASSES, "communication")
# Operators that carry the number of an operator of forward, but are part of backward.
_BACKWARD: Final = r"^autograd::engine|Backward\d*$|^torch::autograd::"
# Threads with the most numbered operators: others are not searched for operators of forward.
_MOST_LANES: Final = 16


class _CallModules(Struct, frozen=True):
    """The module of each call that launched GPU activities: index of its frame, row of the forward operator.

    Both are -1 for none; `how` is an index into `_HOW`, -1 for none.
    """

    frame: Numbers
    forward: Rows
    how: Small


def kernel_modules(
    columns: Columns,
    nesting: Nesting,
    calls: Calls,
    launches: Launches,
    attribution: Attribution,
    classes: Classes,
    frames: ModuleFrames,
) -> pa.Table:
    """The table, a row per GPU activity, in row order."""
    # A rank without calls of modules has no rows.
    modules = columns.rank_index(frames.rows[~frames.recompute])
    has_modules = np.isin(columns.rank_index(launches.rows), modules)
    launches = launches.part(has_modules)
    call = call_indexes(attribution, launches.runtime)
    is_communication = classes.kind[has_modules] == np.int8(KINDS.index("communication"))
    found = _modules_of_calls(columns, nesting, calls, attribution, frames)
    pass_ = np.append(attribution.pass_, np.int8(PASSES.index("other")))[call]
    call = np.where(is_communication, -1, call)
    frame, how = np.append(found.frame, -1)[call], np.append(found.how, np.int8(-1))[call]
    pass_[is_communication] = _KERNEL_PASSES.index("communication")
    return pa.table(
        {
            "kernel_id": bigint_column(launches.rows),
            "module_id": id_column(np.append(frames.rows, np.int32(-1))[frame]),
            "forward_id": id_column(np.append(found.forward, np.int32(-1))[call]),
            "module_path": _with_accumulation(frames.module_path, frame, how),
            "class_path": _with_accumulation(frames.class_path, frame, how),
            "pass": encoded_texts(pass_, _KERNEL_PASSES),
            "attribution_method": encoded_texts(how, _HOW),
        }
    )


_GRAPH_ANNOTATIONS: Final = r"""
SELECT
  args ->> '$.annotation' AS module_path,
  regexp_replace(module_path, '\.\d+(\.|$)', '.*\1', 'g') AS class_path
FROM given
"""


def with_annotations(
    found: pa.Table | None,
    columns: Columns,
    rules: Rules,
    launches: Launches,
    attribution: Attribution,
    classes: Classes,
    hlo: pa.Table | None,
) -> pa.Table | None:
    """The table with kernels of graphs or JAX whose arguments say what they belong to; None without rows."""
    is_kernel = classes.kind != KINDS.index("communication")
    if hlo is not None:
        is_kernel &= flags(hlo["module_path"].is_valid())
        texts = hlo.filter(pa.array(is_kernel))
    else:
        is_kernel &= columns.valid("graph_id", launches.rows)
        args = columns.texts("args", launches.rows[is_kernel])
        named = flags(pc.fill_null(pc.match_substring_regex(args, '"annotation": ?"[^"]'), False))
        is_kernel[is_kernel] = named
        texts = rules.query(_GRAPH_ANNOTATIONS, pa.table({"args": args.filter(pa.array(named))}))
    if not is_kernel.any():
        return found
    call = call_indexes(attribution, launches.runtime[is_kernel])
    nothing = np.full(len(call), -1, np.int32)
    annotated = pa.table(
        {
            "kernel_id": bigint_column(launches.rows[is_kernel]),
            "module_id": id_column(nothing),
            "forward_id": id_column(nothing),
            "module_path": texts.column("module_path").cast(pa.string()).dictionary_encode(),
            "class_path": texts.column("class_path").cast(pa.string()).dictionary_encode(),
            "pass": encoded_texts(np.append(attribution.pass_, np.int8(PASSES.index("other")))[call], PASSES)
            if hlo is None
            else texts["pass"].cast(pa.string()).dictionary_encode(),
            "attribution_method": encoded_texts(np.full(len(call), _ANNOTATED), _HOW),
        }
    )
    if found is None:
        return annotated
    others = found.filter(pc.invert(pc.is_in(found.column("kernel_id"), annotated.column("kernel_id"))))
    return pa.concat_tables([others, annotated]).unify_dictionaries().sort_by("kernel_id")


def _with_accumulation(texts: Texts, frame: Numbers, how: Small) -> pa.Array:
    """The path of each activity's module, or the name of gradient accumulation."""
    words = pa.concat_arrays([texts.words, pa.array([ACCUMULATION])])
    codes = np.append(texts.codes, np.int32(-1))[frame]
    return encoded_texts(np.where(how == _ACCUMULATED, np.int32(len(words) - 1), codes), words)


def _modules_of_calls(
    columns: Columns, nesting: Nesting, calls: Calls, attribution: Attribution, frames: ModuleFrames
) -> _CallModules:
    """The module of each launching call: by the enclosing frame, else by what the engine's operator says."""
    pre = calls.pre[np.searchsorted(calls.rows, attribution.calls)].astype(np.int64)
    frame, innermost = frames.of_rows(attribution.module), frames.innermost(pre)
    frame[(innermost > frame) & frames.recompute[innermost]] = -1  # a recomputation lies between the two
    found = _CallModules(
        frame, np.full(len(pre), -1, np.int32), np.where(frame >= 0, _ENCLOSING, -1).astype(np.int8)
    )
    # The positions in nesting order of operators of the autograd engine.
    words = columns.words("name")
    engine = np.flatnonzero(
        columns.where("name", flags(pc.starts_with(words, ENGINE_OPERATOR)), nesting.rows)
    )
    engine = engine[columns.is_one_of("category", (OPERATOR_CATEGORY,), nesting.rows[engine])]
    node = last_reaching(nesting.post[engine].astype(np.int64), np.searchsorted(engine + 1, pre), pre, True)
    inside = np.flatnonzero(node >= 0)
    inside = inside[engine[node[inside]] + 1 > np.append(frames.pre, -1)[frame[inside]]]
    if inside.size:
        used, number = np.unique(node[inside], return_inverse=True)
        # The module of each operator of the engine, by its operator of forward.
        rows = nesting.rows[engine[used]]
        accumulates = columns.where("name", flags(pc.ends_with(words, _ACCUMULATE)), rows)
        forward = np.where(accumulates, -1, _forward_operators(columns, nesting, rows))
        frame = frames.innermost(np.maximum(forward, 0) + 1)
        frame = np.where((forward >= 0) & (frame >= 0) & ~frames.recompute[frame], frame, -1)
        how = np.where(accumulates, _ACCUMULATED, np.where(frame >= 0, _SEQUENCE, -1))
        forward_row = np.append(nesting.rows, np.int32(-1))[forward]
        ruled = _CallModules(frame, forward_row, how.astype(np.int8))
        known = (ruled.how == _ACCUMULATED) | (ruled.forward >= 0)
        inside, number = inside[known[number]], number[known[number]]
        for ours, theirs in zip(asdict(found).values(), asdict(ruled).values(), strict=True):
            ours[inside] = theirs[number]
    return found


def _forward_operators(columns: Columns, nesting: Nesting, engine: Rows) -> Numbers:
    """The position of the operator of forward of each operator of the engine, -1 for none."""
    candidates = _numbered(columns, nesting)
    ranks = zip(columns.slices(engine), columns.slices(nesting.rows[candidates]), strict=True)
    return np.concatenate([_forward(columns, nesting, engine[e], candidates[c]) for e, c in ranks])


def _forward(columns: Columns, nesting: Nesting, engine: Rows, candidates: Numbers) -> Numbers:
    """Those of a rank."""
    number, ts = columns.ints("sequence_number", engine), columns.ints("ts_ns", engine).values
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
    starts = columns.ints("ts_ns", nesting.rows[np.maximum(found.ravel(), 0)]).values
    starts = np.where(found >= 0, starts.reshape(found.shape), np.iinfo(np.int64).min)
    threads = columns.ints("forward_thread", engine)
    lane_of = _forward_lanes(found, starts, np.where(threads.valid, threads.values, -1))
    chosen: Numbers = found[lane_of, np.arange(len(engine))]
    return chosen


def _numbered(columns: Columns, nesting: Nesting) -> Numbers:
    """The positions of operators with a sequence number that are not part of backward."""
    if not columns.has("sequence_number"):
        return np.empty(0, np.int64)
    positions = np.flatnonzero(columns.is_one_of("category", (OPERATOR_CATEGORY,), nesting.rows))
    rows = nesting.rows[positions]
    numbers = columns.ints("sequence_number", rows)
    backward = flags(pc.match_substring_regex(columns.words("name"), _BACKWARD))
    return positions[numbers.valid & (numbers.values >= 0) & ~columns.where("name", backward, rows)]


def _last_on_lane(
    columns: Columns, nesting: Nesting, positions: Numbers, number: Numbers, ts: Numbers
) -> Numbers:
    """The last of the operators with each number that starts by the time, the outermost of a start."""
    positions = positions[::-1]  # of equal starts the last in this order counts
    rows = nesting.rows[positions]
    numbers, starts = columns.ints("sequence_number", rows).values, columns.ints("ts_ns", rows).values
    return np.append(positions, -1)[last_before(numbers, starts, number, ts)]


def _forward_lanes(found: Numbers, starts: Numbers, thread: Numbers) -> Numbers:
    """The lane (row of `found`) of each operator of the engine.

    The profiler numbers threads in its own way: the lane of a number is the one with most of its operators,
    of equal ones the one that holds most of the latest. Without a thread, the latest operator counts.
    """
    latest = starts.argmax(axis=0)
    lane: Numbers = latest.copy()
    for each in np.unique(thread[thread >= 0]).tolist():
        of_thread = thread == each
        held = (found[:, of_thread] >= 0).sum(axis=1)
        last = np.bincount(latest[of_thread], minlength=len(found))
        lane[of_thread] = np.lexsort((last, held))[-1]
    return lane
