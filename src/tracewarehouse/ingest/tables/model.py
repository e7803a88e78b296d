"""What builders pass to each other: the host slices of a rank as a tree, its calls, launches and steps.

All of them hold rows: a row is the position of an activity, which is its event_id. The arrays of one class
are parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.paths import Paths

    Rows = NDArray[np.int32]
    Flags = NDArray[np.bool_]
    Times = NDArray[np.int64]
    Small = NDArray[np.int8]
    Positions = NDArray[np.integer[Any]]
    Numbers = NDArray[np.int64]
PASSES: Final = ("forward", "backward", "recompute", "optimizer", "data", "other")
# Prefix of the Python frames of modules, and text in the frames in which checkpointing runs a forward again.
MODULE_FRAME: Final = "nn.Module: "
RECOMPUTE_FRAME: Final = ": recompute_fn"
# Prefix of the operators of the autograd engine, and the one that runs a forward again.
ENGINE_OPERATOR: Final = "autograd::engine::evaluate_function: "
CHECKPOINT_OPERATOR: Final = f"{ENGINE_OPERATOR}CheckpointFunctionBackward"


@dataclass(frozen=True)
class Nesting:
    """Host slices in nesting order; the slice at position i has `pre` = i + 1.

    `post` is the `pre` of its last descendant, or its own if it has none. Lane k has the positions from
    `lanes[k]` to `lanes[k + 1]`; `threads[k]` says whether the lane holds annotations, and its process and
    thread, empty if unknown. The rest of the tree is in the columns that `nest` adds.
    """

    rows: Rows
    lanes: NDArray[np.int64]
    threads: Sequence[tuple[bool, str, str]]
    post: NDArray[np.int32]


@dataclass(frozen=True)
class Calls:
    """Calls of a GPU runtime on host threads, in row order."""

    rows: Rows
    ts_ns: Times
    end_ns: Times
    pre: NDArray[np.int32]
    post: NDArray[np.int32]
    correlation: Ints


class LaunchState(IntEnum):
    """Whether the launch of a GPU activity is known, and if not why; the values of `kernels.launch_state`."""

    KNOWN = 0
    BEFORE_WINDOW = 1
    MISSING = 2


class Via(IntEnum):
    """What links a GPU activity to its launch."""

    CORRELATION = 0
    FLOW = 1


@dataclass(frozen=True)
class Launches:
    """GPU activities with valid times in row order, and the call that launched each.

    `device` and `stream` are -1 if unknown. `runtime` is the row of the call and `via` one of Via, both -1 if
    the launch is unknown; `call_ts_ns` is then 0 and `is_graph` False. `state` is one of LaunchState.
    """

    rows: Rows
    device: NDArray[np.int64]
    stream: NDArray[np.int64]
    ts_ns: Times
    runtime: Rows
    call_ts_ns: Times
    state: Small
    is_graph: Flags
    via: Small


@dataclass(frozen=True)
class StepAnnotations:
    """Slices on the host that mark steps, in row order; `inferred`: by rules, not `ProfilerStep#N`."""

    rows: Rows
    step: NDArray[np.int64]
    start_ns: Times
    end_ns: Times
    inferred: bool = False


@dataclass(frozen=True)
class StepIntervals:
    """Intervals that belong to one step each, by start; the end is exclusive."""

    step: NDArray[np.int64]
    start_ns: Times
    end_ns: Times


@dataclass(frozen=True)
class Attribution:
    """What each call is attributed to; rows are -1 for none.

    `call_op` is the innermost enclosing operator of every call. The other arrays are parallel to `calls`, the
    calls that launched GPU activities: `pass_` is an index into `PASSES`, `path` one of `paths`, -1 for the
    empty path.
    """

    call_op: Rows
    calls: Rows
    op: Rows
    top_op: Rows
    collective: Rows
    module: Rows
    annotation: Rows
    pass_: Small
    path: NDArray[np.int32]
    paths: Paths


class RuleHits(NamedTuple):
    """The rows that a rule applies to, and the time affected by each; None if the rule affects no time."""

    rows: Positions
    ns: Ints | Numbers | None = None


@dataclass(frozen=True)
class QualityInput:
    """What the rules of `data_quality` read: the activities and the results of builders.

    `flows_without_start` are the rows of `flows` without a start.
    """

    columns: Columns
    rules: Rules
    nesting: Nesting
    calls: Calls
    launches: Launches
    flows_without_start: Positions
    step_annotations: StepAnnotations | None = None
