"""Instructions of a program and their operands: host slices, kernels, calls, collectives, memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

COMPUTE, TENSOR, DATA, STAGE = "compute", "tensor", "data", "stage"  # streams, and groups of ranks
FIRST_STEP = 1  # the number of the first ProfilerStep


class Op(IntEnum):
    """The operation of an instruction; the index in the table of handlers."""

    BEGIN = 0
    END = 1
    LAUNCH = 2
    COLLECTIVE = 3
    RECORD = 4
    WAIT = 5
    SYNC = 6
    SPEND = 7
    MEMORY = 8
    THREAD = 9
    GRAPH = 10


@dataclass(frozen=True, eq=False)
class Frame:
    """A host slice. `sequence` links forward and backward operators; `stack` is for old PyTorch versions.

    `values` are the arguments that are not tensors, by position.
    """

    category: str
    name: str
    shapes: tuple[tuple[int, ...], ...] | None = None
    lead_ns: int = 700
    tail_ns: int = 300
    sequence: int | None = None
    forward: bool = False
    backward: bool = False
    module: int | None = None
    stack: str | None = None
    values: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Api:
    """A runtime call: name, number and duration."""

    name: str
    number: int
    ns: int
    category: str = "cuda_runtime"


@dataclass(frozen=True, eq=False)
class Kernel:
    """A GPU activity and its duration on an idle GPU."""

    key: str
    name: str
    category: str
    kind: str
    ns: int
    api: Api
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 32
    shared_bytes: int = 0
    bytes: int = 0
    early_ns: int = 0


@dataclass(frozen=True, eq=False)
class Collective:
    """A collective over a group of ranks: `scope` is the kind of group, `edge` the lower stage of a pair."""

    name: str
    scope: str
    kernel: Kernel
    bytes: int
    in_elements: int
    out_elements: int
    factor: str
    edge: int = 0


@dataclass(frozen=True, eq=False)
class Spend:
    """Host time without GPU work: of the data loader (`data`) or other."""

    ns: int
    what: str = "host"


@dataclass(frozen=True, eq=False)
class Event:
    """An event recorded on a stream that another stream or the host waits for."""

    name: str
    stream: str
    waiter: str = COMPUTE


@dataclass(frozen=True, eq=False)
class Memory:
    """Bytes allocated (negative: freed) under a key."""

    bytes: int
    key: int


@dataclass(frozen=True, eq=False)
class Graph:
    """A captured graph: the kernels and collectives of one launch.

    `lines` are the instructions that were captured, with the frames around them, if the job records captures.
    """

    number: int
    nodes: tuple[Kernel | Collective, ...]
    lines: tuple[tuple[Op, Operand], ...] = ()

    def is_cut(self, node: int) -> bool:
        """Whether the recording ends before this node, if it ends in the middle of a replay.

        A replay with collectives is not cut, because other ranks record their part of them.
        """
        return node >= len(self.nodes) // 2 and not any(isinstance(each, Collective) for each in self.nodes)


Operand = Frame | Kernel | Collective | Event | Spend | Memory | Graph | str | None
Tape = tuple[tuple[Op, Operand], ...]
