"""Table `modules`: calls of nn.Module instances, from the frames that the Python tracer records.

The path of a call has the modules that enclose it, outermost first. Below a frame in which checkpointing
runs a forward again (`recompute_fn`, or its operator in backward), the path is cut, and continues the one
that the same instance had when it last ran outside of recomputation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.model import CHECKPOINT_OPERATOR, MODULE_FRAME, RECOMPUTE_FRAME
from tracewarehouse.ingest.tables.nesting import OPERATOR_CATEGORY
from tracewarehouse.ingest.tables.paths import Paths, levels
from tracewarehouse.ingest.tables.rows import bigint_column, encoded_texts, id_column, selected_columns
from tracewarehouse.ingest.tables.search import last_before, last_reaching

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Flags, Nesting, Rows

    Indexes = NDArray[np.integer[Any]]
    Pre = NDArray[np.int64]


_INSTANCE: Final = r"_\d+$"


@dataclass(frozen=True)
class Texts:
    """Texts, and the index of each frame's text."""

    codes: NDArray[np.int32]
    words: pa.Array

    def column(self, frames: Indexes) -> pa.Array:
        """The text of each frame, null for -1."""
        return encoded_texts(np.append(self.codes, np.int32(-1))[frames], self.words)


@dataclass(frozen=True)
class ModuleFrames:
    """Calls of modules, and frames of recomputation, in nesting order.

    Other arrays and methods name a frame by its index, -1 for none. `recompute`: the frame runs a forward
    again; `repeated`: it lies inside of such a frame; `parent`: the enclosing call in the path.
    """

    rows: Rows
    pre: Pre
    post: Pre
    recompute: Flags
    repeated: Flags
    parent: NDArray[np.int32]
    name: Texts
    class_name: Texts
    module_path: Texts
    class_path: Texts

    def innermost(self, pre: Pre) -> NDArray[np.int64]:
        """The innermost frame that encloses each position in nesting order."""
        return last_reaching(self.post, np.searchsorted(self.pre, pre, side="right"), pre, inclusive=True)

    def of_rows(self, rows: Rows) -> NDArray[np.int64]:
        """The frame of each row; -1 for -1."""
        order = np.argsort(self.rows)
        found = order[np.searchsorted(self.rows[order], np.maximum(rows, self.rows.min()))]
        return np.where(rows >= 0, found, -1)


def find_modules(columns: Columns, nesting: Nesting) -> ModuleFrames | None:
    """All calls of modules; None if there are none."""
    words = columns.words("name")
    module, recompute = _starts_with(words, MODULE_FRAME), _recomputes(words)
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
    repeated = _repeated(above, recompute)
    parent = _continued(above, recompute, repeated, names.codes, columns.ints("ts_ns", rows).values)
    used, code = np.unique(names.codes, return_inverse=True)
    frame = names.words.take(pa.array(used)).cast(pa.string())
    name = pc.replace_substring_regex(frame, f"^{MODULE_FRAME}", "")
    class_name = pc.replace_substring_regex(name, _INSTANCE, "")
    codes: NDArray[np.int32] = np.where(recompute, -1, code).astype(np.int32)
    return ModuleFrames(
        rows,
        pre,
        post,
        recompute,
        repeated,
        parent,
        Texts(codes, name),
        Texts(codes, class_name),
        _paths(parent, codes, name),
        _paths(parent, codes, class_name),
    )


def _starts_with(words: pa.Array, prefix: str) -> Flags:
    return pc.starts_with(words, prefix).to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


def _recomputes(words: pa.Array) -> Flags:
    """Whether a frame or operator of this name runs a forward again."""
    found = pc.or_(pc.match_substring(words, RECOMPUTE_FRAME), pc.equal(words, CHECKPOINT_OPERATOR))
    return found.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


def _repeated(above: Indexes, recompute: Flags) -> Flags:
    """Whether each frame lies inside a recomputation."""
    found = np.zeros(len(above), np.bool_)
    ancestor = above
    while recompute.any() and (ancestor >= 0).any():
        found |= (ancestor >= 0) & recompute[ancestor]
        ancestor = np.where(ancestor >= 0, above[ancestor], -1)
    return found


def _continued(
    above: Indexes, recompute: Flags, repeated: Flags, name: NDArray[np.int32], ts: NDArray[np.int64]
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
