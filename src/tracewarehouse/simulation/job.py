"""What is simulated: a job of many ranks, its model, its machine, and how its traces are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from types import MappingProxyType

from tracewarehouse import hints
from tracewarehouse.errors import ParamError, UnknownName

DIALECTS = ("new", "epoch", "old")
MODES = ("training", "inference")
QUARTER_NS = 1_775_078_550_000_000_000  # what times of the new dialect count from


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU; rates in units per ns (1 GB/s = 1 byte/ns, 1 TFLOP/s = 1,000 flop/ns)."""

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


GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "V100": Gpu("Tesla V100-SXM2-32GB", "nvidia", 80, 34_079_899_648, 100_000, 900, 130, 7, 0, 32),
        "A100": Gpu("NVIDIA A100-SXM4-80GB", "nvidia", 108, 85_031_714_816, 280_000, 2_000, 270, 8, 0, 32),
        "H100": Gpu("NVIDIA H100 80GB HBM3", "nvidia", 132, 85_045_477_376, 700_000, 3_300, 400, 9, 0, 32),
        "MI300X": Gpu("AMD Instinct MI300X", "amd", 304, 206_141_652_992, 800_000, 5_000, 350, 9, 4, 64),
    }
)


@dataclass(frozen=True)
class Noise:
    """Spreads: of a run, of a step, of a kernel (sigma of a lognormal), and how many steps are outliers."""

    run: float = 0.0
    step: float = 0.01
    kernel: float = 0.02
    outliers: float = 0.02


@dataclass(frozen=True)
class Job:
    """Every knob of a simulated job. Raises ParamError for values that make no job."""

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
    dependent_launch: bool = False
    stacks: bool = True
    memory: bool = True
    counters: bool = False
    syncs: bool = True
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
                f"{self.ranks} ranks do not split into tensor {self.tensor} x pipeline {self.pipeline}",
                "make ranks a multiple of tensor x pipeline",
            )
        if self.layers % self.pipeline:
            raise ParamError(
                f"{self.layers} layers do not split into {self.pipeline} stages",
                "make layers a multiple of pipeline",
            )
        for injection in self.injections:
            injection.check(self.ranks, self.steps)

    @property
    def data(self) -> int:
        """How many copies of the model there are."""
        return self.ranks // (self.tensor * self.pipeline)

    @property
    def machine(self) -> Gpu:
        """The kind of GPU."""
        return GPUS[self.gpu]

    @property
    def link_bytes_per_ns(self) -> int:
        """Bandwidth between the GPUs of one node."""
        return self.link_gb_per_s or self.machine.link_bytes_per_ns

    @property
    def start_ns(self) -> int:
        """When the run begins, ns since the epoch."""
        return int(_moment(self.start).timestamp()) * 1_000_000_000

    def place(self, rank: int) -> tuple[int, int, int]:
        """(stage, copy, slice) of a rank: tensor ranks are neighbours, stages are furthest apart."""
        stage, rest = divmod(rank, self.data * self.tensor)
        copy, part = divmod(rest, self.tensor)
        return stage, copy, part

    def at(self, stage: int, copy: int, part: int) -> int:
        """The rank at that place: the inverse of `place`."""
        return (stage * self.data + copy) * self.tensor + part

    def said(self) -> dict[str, object]:
        """All knobs by name, as JSON types."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["noise"] = vars(self.noise)
        values["injections"] = [str(each) for each in self.injections]
        return values


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _check_counts(job: Job) -> None:
    counted = "ranks steps layers hidden batch sequence microbatches tensor pipeline ranks_per_node"
    for name in [
        *counted.split(),
        "network_gb_per_s",
        "launch_ns",
        "link_gb_per_s",
        "queue_limit",
        "load_us",
    ]:
        value = getattr(job, name)
        if value is not None and value < 1:
            raise ParamError(f"{name} is {value}", "it must be 1 or more")
    if job.workers < 0:
        raise ParamError(f"workers is {job.workers}", "it must be 0 or more")
    for name, sigma in vars(job.noise).items():
        if not 0 <= sigma <= 1:
            raise ParamError(f"noise {name} is {sigma}", "it must lie between 0 and 1")


def _check_words(job: Job) -> None:
    for name, known in (("mode", MODES), ("gpu", tuple(GPUS)), ("dialect", DIALECTS)):
        if getattr(job, name) not in known:
            raise ParamError(f"unknown {name}: {getattr(job, name)}", f"there are: {', '.join(known)}")
    if job.dialect == "old" and job.machine.vendor == "amd":
        raise ParamError(
            "the old dialect knows no AMD GPU",
            hints.fill("use {} or {}", hints.option("dialect", "new"), hints.option("dialect", "epoch")),
        )
    try:
        moment = _moment(job.start)
    except ValueError as error:
        raise ParamError(f"start {job.start!r} is no time", "write it as 2026-05-04T09:00:00") from error
    if job.dialect == "new" and int(moment.timestamp()) * 1_000_000_000 < QUARTER_NS:
        raise ParamError(
            f"start {job.start} lies before the base of the new dialect", "start after 2026-04-01"
        )


WHOLE = ("rank", "step", "count", "collective")
SLOW = ("compute", "host", "data")
TEXT = ("what", "kernel", "to", "group")

EVERY_STEP = ("slow-link", "long-collective", "clock", "missing-rank", "truncated-window", "before-window")
EVERY_RANK = ("slow-link", "long-collective")
# Kind: (what it does, its own values with their defaults; None = must be given).
KINDS: Mapping[str, tuple[str, Mapping[str, object]]] = MappingProxyType(
    {
        "slow-rank": ("a rank is slower: what=compute, host or data", {"what": "compute", "factor": 1.5}),
        "slow-kernel": ("a kernel takes longer by percent", {"kernel": None, "percent": 20.0}),
        "extra-kernel": ("a further kernel in each step", {"us": 50.0}),
        "removed-kernel": ("a kernel is gone, its operator too", {"kernel": "dropout"}),
        "renamed-kernel": ("a kernel goes by another name, as after an upgrade", {"kernel": None, "to": ""}),
        "dataloader-stall": ("the data loader waits in one step", {"step": None, "ms": 5.0}),
        "blocking-item": ("each step ends with a blocking .item()", {}),
        "no-overlap": ("computation waits for every gradient collective", {}),
        "slow-link": (
            "a group's link is slower by a factor: group=tensor0, data1, …",
            {"group": None, "factor": 4.0},
        ),
        "long-collective": (
            "one collective of a group takes far longer",
            {"group": "data0", "collective": 1, "ms": 3.0},
        ),
        "growing-memory": ("each step leaves memory allocated", {"mb": 64.0}),
        "clock": ("a rank's clock is off and drifts", {"rank": None, "offset_us": 0.0, "drift_ppm": 0.0}),
        "missing-rank": ("a rank writes no trace", {"rank": None}),
        "truncated-window": ("the recording starts late or stops early", {"from_ms": 0.0, "to_ms": 0.0}),
        "before-window": ("the first launches were made before the recording", {"count": 20}),
        "lost-gpu": ("a share of the GPU rows is lost", {"share": 0.05}),
        "lost-launch": ("a share of the launches is lost, their GPU rows are not", {"share": 0.05}),
    }
)


@dataclass(frozen=True)
class Injection:
    """One planted thing; `values` holds its own knobs, rank and step narrow it (None = all)."""

    kind: str
    values: Mapping[str, object]
    rank: int | None = None
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> Injection:
        """From `KIND[:KEY=VALUE,…]`. Raises UnknownName and ParamError."""
        kind, _, rest = text.partition(":")
        if kind not in KINDS:
            raise UnknownName("injection", kind, KINDS)
        given = dict(_pair(kind, part) for part in rest.split(",") if part)
        own = KINDS[kind][1]
        for key in given:
            if key not in own and key not in ("rank", "step"):
                raise UnknownName(f"value of {kind}", key, [*own, "rank", "step"])
        values = {key: given.get(key, default) for key, default in own.items()}
        missing = [key for key, value in values.items() if value is None]
        if missing:
            raise ParamError(f"{kind} needs {missing[0]}", f"write {kind}:{missing[0]}=…")
        rank, step = given.get("rank"), given.get("step")
        return cls(
            kind,
            MappingProxyType({key: value for key, value in values.items() if key not in ("rank", "step")}),
            rank if isinstance(rank, int) else None,
            step if isinstance(step, int) else None,
        )

    def __str__(self) -> str:
        own = {**self.values, "rank": self.rank, "step": self.step}
        parts = [f"{key}={value}" for key, value in own.items() if value is not None]
        return f"{self.kind}:{','.join(parts)}" if parts else self.kind

    def number(self, key: str) -> float:
        """A value that is a number."""
        value = self.values[key]
        assert isinstance(value, int | float)
        return float(value)

    def word(self, key: str) -> str:
        """A value that is a text."""
        return str(self.values[key])

    def hits(self, rank: int, step: int) -> bool:
        """Whether it concerns a rank in a step (counted from 0)."""
        return self.rank in (None, rank) and self.step in (None, step)

    def check(self, ranks: int, steps: int) -> None:
        """Raises ParamError where the job has no such rank or step."""
        for name, value, kinds in (("rank", self.rank, EVERY_RANK), ("step", self.step, EVERY_STEP)):
            if value is not None and self.kind in kinds:
                raise ParamError(f"{self.kind} takes no {name}", f"leave out {name}={value}")
        for name, value, size in (("rank", self.rank, ranks), ("step", self.step, steps)):
            if value is not None and not 0 <= value < size:
                raise ParamError(f"{self.kind}: no {name} {value}", f"the job has {name}s 0 to {size - 1}")
        if self.kind == "slow-rank" and self.word("what") not in SLOW:
            raise ParamError(f"slow-rank: what={self.word('what')}", f"it is one of {', '.join(SLOW)}")
        for key in ("factor", "percent", "share", "count", "us", "ms", "mb", "from_ms", "to_ms"):
            if key in self.values and self.number(key) < 0:
                raise ParamError(f"{self.kind}: {key} is negative", "give 0 or more")


def _pair(kind: str, part: str) -> tuple[str, object]:
    key, equals, text = part.partition("=")
    if not equals:
        raise ParamError(f"{kind}: {part!r} is no KEY=VALUE", f"write {kind}:KEY=VALUE,…")
    if key in TEXT:
        return key, text
    try:
        return key, int(text) if key in WHOLE else float(text)
    except ValueError as error:
        raise ParamError(f"{kind}: {key}={text} is no number") from error
