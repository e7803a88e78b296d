"""What builders hand to each other: the host slices of a rank as a tree, its calls, launches and steps.

All hold rows: a row is the position of an activity, which is its event_id. Arrays of one class are parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Ints
    from tracewarehouse.ingest.tables.paths import Paths

    Rows = NDArray[np.int32]
    Flags = NDArray[np.bool_]
    Times = NDArray[np.int64]
    Small = NDArray[np.int8]


@dataclass(frozen=True)
class Nesting:
    """Host slices in the order of nesting; the slice at position i has `pre` = i + 1.

    `post` is the `pre` of its last descendant, its own without one. Lane k is at the positions from
    `lanes[k]` to `lanes[k + 1]`; `threads[k]` says whether it is of annotations, and its process and thread,
    empty where a row has none. The rest of the tree is in the columns that `nest` adds.
    """

    rows: Rows
    lanes: NDArray[np.int64]
    threads: Sequence[tuple[bool, str, str]]
    post: NDArray[np.int32]


@dataclass(frozen=True)
class Calls:
    """Calls of a GPU runtime that nest, in the order of their rows."""

    rows: Rows
    ts_ns: Times
    end_ns: Times
    pre: NDArray[np.int32]
    post: NDArray[np.int32]
    correlation: Ints


class LaunchState(IntEnum):
    """Why a GPU row has a call or has none, in the words of `kernels.launch_state`."""

    KNOWN = 0
    BEFORE_WINDOW = 1
    MISSING = 2


class Via(IntEnum):
    """What links a GPU row to its call."""

    CORRELATION = 0
    FLOW = 1


@dataclass(frozen=True)
class Launches:
    """GPU rows with usable times in the order of their rows, and the call that launched each.

    `device` and `stream` are -1 where the trace does not say. `runtime` is the row of the call and `via` one
    of Via, both -1 where no call is known; `call_ts_ns` is then 0 and `is_graph` False. `state` is one of
    LaunchState.
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
class StepMarks:
    """Slices on the host that mark steps, in the order of their rows; `inferred`: not `ProfilerStep#N`."""

    rows: Rows
    step: NDArray[np.int64]
    start_ns: Times
    end_ns: Times
    inferred: bool = False


@dataclass(frozen=True)
class StepSpans:
    """Stretches of time that belong to one step, by start; the end is exclusive."""

    step: NDArray[np.int64]
    start_ns: Times
    end_ns: Times


@dataclass(frozen=True)
class Owners:
    """What calls belong to; rows are -1 where there is none.

    `call_op` is the innermost operator around each of all calls. The others are of `calls`, those that
    launched GPU rows: `pass_` points into `PASSES`, `path` is one of `paths`, -1 for the empty one.
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


PASSES: Final = ("forward", "backward", "recompute", "optimizer", "data", "other")
