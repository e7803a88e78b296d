"""Settings of a simulated job, and the instructions of its programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse import hints
from tracewarehouse.errors import ParamError, UnknownName

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


class Frame(Struct, frozen=True, eq=False):
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


class Api(Struct, frozen=True, eq=False):
    """A runtime call: name, number and duration."""

    name: str
    number: int
    ns: int
    category: str = "cuda_runtime"


class Kernel(Struct, frozen=True, eq=False):
    """A GPU activity and its duration on an idle GPU; `lost` is the share that an injected fault costs."""

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
    fault: str = ""
    lost: float = 1.0


class Collective(Struct, frozen=True, eq=False):
    """A collective over a group of ranks: `scope` is the kind of group, `edge` the lower stage of a pair."""

    name: str
    scope: str
    kernel: Kernel
    bytes: int
    in_elements: int
    out_elements: int
    edge: int = 0


class Spend(Struct, frozen=True, eq=False):
    """Host time without GPU work: of the data loader (`data`), of an injected fault (its kind), or other."""

    ns: int
    what: str = "host"


class Event(Struct, frozen=True, eq=False):
    """An event recorded on a stream that another stream or the host waits for."""

    name: str
    stream: str
    waiter: str = COMPUTE


class Memory(Struct, frozen=True, eq=False):
    """Bytes allocated (negative: freed) under a key."""

    bytes: int
    key: int


class Graph(Struct, frozen=True, eq=False):
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
        return node >= len(self.nodes) // 2 and not any(isinstance(node, Collective) for node in self.nodes)


Operand = Frame | Kernel | Collective | Event | Spend | Memory | Graph | str | None
Tape = tuple[tuple[Op, Operand], ...]


DIALECTS = ("new", "epoch", "old")
MODES = ("training", "inference")
_LARGEST = 1_000_000  # of any count, size or duration, so that times and bytes are 64-bit integers
QUARTER_NS = 1_775_078_550_000_000_000  # base time of timestamps in the new dialect


class Gpu(Struct, frozen=True):
    """A GPU model; rates are per ns (1 GB/s = 1 byte/ns, 1 TFLOP/s = 1,000 flop/ns)."""

    name: str
    vendor: str
    multiprocessors: int
    memory_bytes: int
    flop_per_ns: int
    memory_bytes_per_ns: int
    link_bytes_per_ns: int
    major: int
    minor: int
    warp: int
    host_bytes_per_ns: int


GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "V100": Gpu("Tesla V100-SXM2-32GB", "nvidia", 80, 34_079_899_648, 100_000, 900, 130, 7, 0, 32, 12),
        "A100": Gpu(
            "NVIDIA A100-SXM4-80GB", "nvidia", 108, 85_031_714_816, 280_000, 2_000, 270, 8, 0, 32, 25
        ),
        "H100": Gpu(
            "NVIDIA H100 80GB HBM3", "nvidia", 132, 85_045_477_376, 700_000, 3_300, 400, 9, 0, 32, 52
        ),
        "MI300X": Gpu("AMD Instinct MI300X", "amd", 304, 206_141_652_992, 800_000, 5_000, 350, 9, 4, 64, 52),
    }
)


class Noise(Struct, frozen=True):
    """Noise of runs, steps and kernels (sigma of a lognormal), and the share of outlier steps."""

    run: float = 0.0
    step: float = 0.01
    kernel: float = 0.02
    outliers: float = 0.02


class Job(Struct, frozen=True):
    """All settings of a simulated job. Raises ParamError for invalid values."""

    ranks: int = 2
    steps: int = 3
    layers: int = 4
    hidden: int = 1024
    batch: int = 4
    sequence: int = 1024
    microbatches: int = 1
    tensor: int = 1
    pipeline: int = 1
    mode: str = "training"
    sharded: bool = False
    experts: bool = False
    gpu: str = "H100"
    ranks_per_node: int = 8
    link_gb_per_s: int | None = None
    network_gb_per_s: int = 50
    launch_ns: int = 4_500
    queue_limit: int = 1024
    load_us: int = 60
    workers: int = 0
    graphs: bool = False
    capture: bool = False
    dependent_launch: bool = False
    stacks: bool = True
    memory: bool = True
    counters: bool = False
    syncs: bool = True
    inputs: bool = True
    dialect: str = "new"
    noise: Noise = Noise()
    seed: int = 0
    start: str = "2026-05-04T09:00:00"
    injections: tuple[Injection, ...] = ()

    def __post_init__(self) -> None:
        _check_counts(self)
        _check_words(self)
        if self.ranks % (self.tensor * self.pipeline):
            raise ParamError(
                f"{self.ranks} ranks are not divisible into tensor {self.tensor} x pipeline {self.pipeline}",
                "use a multiple of tensor x pipeline",
            )
        if self.layers % self.pipeline:
            raise ParamError(
                f"{self.layers} layers are not divisible into {self.pipeline} stages",
                "use a multiple of pipeline",
            )
        if self.capture and not self.graphs:
            raise ParamError("capture needs graphs", "add graphs")
        for injection in self.injections:
            injection.check(self.ranks, self.steps)
            if injection.kind in OF_EAGER_TRAINING and (self.graphs or self.mode != "training"):
                raise ParamError(f"{injection.kind} needs training without graphs", "remove graphs and mode")
            if injection.kind == "slow-stage" and injection.number("stage") >= self.pipeline:
                hint = f"the job has {self.pipeline} pipeline stages, from 0"
                raise ParamError(f"slow-stage: no stage {injection.values['stage']}", hint)

    @property
    def data(self) -> int:
        """Number of model replicas."""
        return self.ranks // (self.tensor * self.pipeline)

    @property
    def machine(self) -> Gpu:
        """The GPU model."""
        return GPUS[self.gpu]

    @property
    def link_bytes_per_ns(self) -> int:
        """Bandwidth between the GPUs of one node."""
        return self.link_gb_per_s or self.machine.link_bytes_per_ns

    @property
    def start_ns(self) -> int:
        """Start of the run in ns since the epoch."""
        return int(_parse_start(self.start).timestamp()) * 1_000_000_000

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(stage, replica, slice) of a rank: tensor ranks are adjacent, stages furthest apart."""
        stage, rank_in_stage = divmod(rank, self.data * self.tensor)
        copy, slice_ = divmod(rank_in_stage, self.tensor)
        return stage, copy, slice_

    def rank_at(self, stage: int, copy: int, part: int) -> int:
        """The rank at these coordinates: the inverse of `coordinates`."""
        return (stage * self.data + copy) * self.tensor + part

    def as_json(self) -> dict[str, object]:
        """All settings by name, as JSON types."""
        values = asdict(self) | {"noise": asdict(self.noise)}
        values["injections"] = [str(injection) for injection in self.injections]
        return values


def _parse_start(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _check_counts(job: Job) -> None:
    counted = (
        "ranks steps layers hidden batch sequence microbatches tensor pipeline ranks_per_node "
        "network_gb_per_s launch_ns link_gb_per_s queue_limit load_us"
    )
    for name in counted.split():
        value = getattr(job, name)
        if value is not None and not 1 <= value <= _LARGEST:
            raise ParamError(f"{name} is {value}", f"must be between 1 and {_LARGEST:,}")
    if not 0 <= job.workers <= _LARGEST:
        raise ParamError(f"workers is {job.workers}", f"must be between 0 and {_LARGEST:,}")
    for name, sigma in asdict(job.noise).items():
        if not 0 <= sigma <= 1:
            raise ParamError(f"noise {name} is {sigma}", "must be between 0 and 1")


def _check_words(job: Job) -> None:
    for name, allowed in (("mode", MODES), ("gpu", tuple(GPUS)), ("dialect", DIALECTS)):
        if getattr(job, name) not in allowed:
            raise ParamError(f"unknown {name}: {getattr(job, name)}", f"use one of {', '.join(allowed)}")
    if job.dialect == "old" and job.machine.vendor == "amd":
        raise ParamError(
            "the old dialect does not support AMD GPUs",
            hints.fill("use {} or {}", hints.option("dialect", "new"), hints.option("dialect", "epoch")),
        )
    try:
        moment = _parse_start(job.start)
    except ValueError as error:
        raise ParamError(f"start {job.start!r} is not a time", "write it as 2026-05-04T09:00:00") from error
    if job.dialect == "new" and int(moment.timestamp()) * 1_000_000_000 < QUARTER_NS:
        raise ParamError(
            f"start {job.start} is before the base time of the new dialect", "use a time after 2026-04-01"
        )


INTEGER_KEYS = ("rank", "step", "count", "collective", "stage")
# Of `what`.
TARGETS = {"slow-rank": ("compute", "host", "data", "copies"), "more-work": ("tokens", "calls")}
_LIMITS: dict[str, tuple[float, float]] = {"share": (0, 1), "bandwidth": (0.01, 1)}
_LIMITS |= {"offset_us": (-(10**12), 10**12), "drift_ppm": (-_LARGEST, _LARGEST)}
TEXT_KEYS = ("what", "kernel", "to", "group")

# Earlier names.
RENAMED = {"missing-rank": "drop-ranks", "lost-gpu": "lose-records"}
WITHOUT_RANK = ("slow-link", "long-collective", "slow-stage")
OF_WINDOW = ("truncated-window", "before-window")
OF_EAGER_TRAINING = ("host-blocked", "recompilation")
# The finding rule that names a fault, if it is not called like the fault.
RULES = {"growing-memory": "memory_growth", "slow-stage": "pipeline_wait"}
RULES |= {"more-work": "slow_rank", "slow-kernel": "slow_rank"}
# Kind: (description, its parameters with defaults; None = required).
KINDS: Mapping[str, tuple[str, Mapping[str, object]]] = MappingProxyType(
    {
        "slow-rank": ("slow down a rank: compute, host, data or copies", {"what": "compute", "factor": 1.5}),
        "slow-kernel": ("slow down a kernel by percent", {"kernel": None, "percent": 20.0}),
        "extra-kernel": ("add a kernel to each step", {"us": 50.0}),
        "removed-kernel": ("remove a kernel and its operator", {"kernel": "dropout"}),
        "renamed-kernel": ("rename a kernel, as after a library upgrade", {"kernel": None, "to": ""}),
        "dataloader-stall": ("stall the data loader in one step", {"step": None, "ms": 5.0}),
        "blocking-item": ("end each step with a blocking .item()", {}),
        "no-overlap": ("let computation wait for each gradient collective", {}),
        "slow-link": (
            "slow down the links of a group: group=tensor0, data1, …",
            {"group": None, "factor": 4.0},
        ),
        "long-collective": (
            "prolong one collective of a group",
            {"group": "data0", "collective": 1, "ms": 3.0},
        ),
        "imbalance": (
            "send more tokens to the experts of a rank: in each all-to-all, factor times as many",
            {"rank": None, "factor": 2.0},
        ),
        "more-work": ("give a rank more tokens or calls", {"rank": None, "what": "tokens", "factor": 1.5}),
        "slow-stage": ("slow down the computation of a pipeline stage", {"stage": None, "factor": 2.0}),
        "exposed-copies": ("copy weights from pinned host memory in each step", {"mb": 128.0}),
        "host-blocked": ("wait for a value (.item()) before the optimizer, while work is queued", {}),
        "startup": ("load modules in the first kernel launch", {"ms": 40.0}),
        "recompilation": ("compile the forward pass again in a step", {"step": None, "ms": 300.0}),
        "slow-elementwise": ("add slow elementwise kernels", {"mb": 256.0, "count": 3, "bandwidth": 0.3}),
        "fusible-chain": ("chain elementwise operators", {"mb": 400.0, "count": 6, "bandwidth": 0.8}),
        "growing-memory": ("leak memory in each step", {"mb": 64.0}),
        "clock": (
            "offset a rank's clock and let it drift",
            {"rank": None, "offset_us": 0.0, "drift_ppm": 0.0},
        ),
        "drop-ranks": ("omit the trace of a rank", {"rank": None}),
        "truncated-window": ("start the recording late or stop it early", {"from_ms": 0.0, "to_ms": 0.0}),
        "before-window": ("omit the first launches, as before the recording", {"count": 20}),
        "skew-start": ("start the recording of a rank later", {"rank": None, "ms": 2.0}),
        "restart": ("record a rank in another attempt, s seconds later", {"rank": None, "s": 60.0}),
        "merge-files": ("write the events of the next rank into the file of a rank, too", {"rank": None}),
        "lose-records": ("drop a share of the GPU activities", {"share": 0.05}),
        "malformed-duration": ("prolong a kernel in each step, in the file only", {"ms": 50.0}),
        "graph-gap": ("add a gap in the middle of each graph launch", {"ms": 0.3}),
        "lost-launch": ("drop a share of the launches, not their activities", {"share": 0.05}),
    }
)


class Injection(Struct, frozen=True):
    """An injected fault with its parameters; rank and step limit it (None = all)."""

    kind: str
    values: Mapping[str, object]
    rank: int | None = None
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> Injection:
        """Parses `KIND[:KEY=VALUE,…]`. Raises UnknownName, ParamError."""
        kind, _, assignments = text.partition(":")
        kind = RENAMED.get(kind, kind)
        if kind not in KINDS:
            raise UnknownName("injection", kind, KINDS)
        assigned = dict(_parse_value(kind, assignment) for assignment in assignments.split(",") if assignment)
        defaults = KINDS[kind][1]
        for key in assigned:
            if key not in defaults and key not in ("rank", "step"):
                raise UnknownName(f"parameter of {kind}", key, [*defaults, "rank", "step"])
        values = {key: assigned.get(key, default) for key, default in defaults.items()}
        missing = [key for key, value in values.items() if value is None]
        if missing:
            raise ParamError(f"{kind} requires {missing[0]}", f"write {kind}:{missing[0]}=…")
        rank, step = assigned.get("rank"), assigned.get("step")
        return cls(
            kind,
            MappingProxyType({key: value for key, value in values.items() if key not in ("rank", "step")}),
            rank if isinstance(rank, int) else None,
            step if isinstance(step, int) else None,
        )

    def __str__(self) -> str:
        values = {**self.values, "rank": self.rank, "step": self.step}
        assignments = [f"{key}={value}" for key, value in values.items() if value is not None]
        return f"{self.kind}:{','.join(assignments)}" if assignments else self.kind

    def number(self, key: str) -> float:
        """A numeric parameter."""
        value = self.values[key]
        assert isinstance(value, int | float)
        return float(value)

    def text_value(self, key: str) -> str:
        """A text parameter."""
        return str(self.values[key])

    def applies_to(self, rank: int, step: int) -> bool:
        """Whether it applies to a rank in a step (zero-based)."""
        return self.rank in (None, rank) and self.step in (None, step)

    def check(self, ranks: int, steps: int) -> None:
        """Raises ParamError for values that the job or the kind does not support."""
        # What needs a rank is about its whole recording.
        without_step = (*WITHOUT_RANK, *OF_WINDOW, *(kind for kind in KINDS if "rank" in KINDS[kind][1]))
        for name, value, kinds in (("rank", self.rank, WITHOUT_RANK), ("step", self.step, without_step)):
            if value is not None and self.kind in kinds:
                raise ParamError(f"{self.kind} does not accept {name}", f"remove {name}={value}")
        for name, value, size in (("rank", self.rank, ranks), ("step", self.step, steps)):
            if value is not None and not 0 <= value < size:
                raise ParamError(f"{self.kind}: no {name} {value}", f"the job has {name}s 0 to {size - 1}")
        targets = TARGETS.get(self.kind)
        if targets is not None and self.text_value("what") not in targets:
            raise ParamError(
                f"{self.kind}: what={self.text_value('what')}", f"use one of {', '.join(targets)}"
            )
        for key in sorted(self.values.keys() - {*TEXT_KEYS, "collective"}):
            least, most = _LIMITS.get(key, (0, _LARGEST))
            if not least <= self.number(key) <= most:
                raise ParamError(
                    f"{self.kind}: {key} is {self.values[key]}", f"must be between {least:,} and {most:,}"
                )


def _parse_value(kind: str, part: str) -> tuple[str, object]:
    key, equals, text = part.partition("=")
    if not equals:
        raise ParamError(f"{kind}: {part!r} is not KEY=VALUE", f"write {kind}:KEY=VALUE,…")
    if key in TEXT_KEYS:
        return key, text
    try:
        return key, int(text) if key in INTEGER_KEYS else float(text)
    except ValueError as error:
        raise ParamError(f"{kind}: {key}={text} is not a number") from error
