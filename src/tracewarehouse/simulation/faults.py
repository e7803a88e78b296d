"""What is planted, looked up by rank and step while the schedule is made."""

from __future__ import annotations

import math
from random import Random

from tracewarehouse.simulation.job import Injection, Job
from tracewarehouse.simulation.kernels import Variant


class Planted:
    """The injections of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.all = job.injections

    def of(self, kind: str, rank: int, step: int) -> list[Injection]:
        """Those of a kind that concern a rank in a step (counted from 0)."""
        return [each for each in self.all if each.kind == kind and each.hits(rank, step)]

    def ever(self, kind: str, rank: int) -> Injection | None:
        """The first of a kind that concerns a rank at all."""
        return next((each for each in self.all if each.kind == kind and each.rank in (None, rank)), None)

    def variant(self, stage: int, rank: int, step: int) -> Variant:
        """Which program the rank runs in that step."""
        return Variant(
            stage,
            frozenset(each.word("kernel") for each in self.of("removed-kernel", rank, step)),
            sum(round(each.number("us") * 1_000) for each in self.of("extra-kernel", rank, step)),
            bool(self.of("blocking-item", rank, step)),
            not self.of("no-overlap", rank, step),
            sum(round(each.number("mb") * 1_000_000) for each in self.of("growing-memory", rank, step)),
        )

    def factor(self, what: str, rank: int, step: int) -> float:
        """How much slower a rank is at `compute`, `host` or `data`."""
        factor = 1.0
        for each in self.of("slow-rank", rank, step):
            if each.word("what") == what:
                factor *= each.number("factor")
        return factor

    def kernel_factors(self, rank: int, step: int) -> dict[str, float]:
        """Kernels that take longer, by key."""
        factors: dict[str, float] = {}
        for each in self.of("slow-kernel", rank, step):
            key = each.word("kernel")
            factors[key] = factors.get(key, 1.0) * (1 + each.number("percent") / 100)
        return factors

    def stall_ns(self, rank: int, step: int) -> int:
        """How long the data loader waits beside its usual time."""
        return sum(round(each.number("ms") * 1_000_000) for each in self.of("dataloader-stall", rank, step))

    def share(self, kind: str, rank: int, step: int) -> float:
        """What share of a rank's rows of a step is lost."""
        return max((each.number("share") for each in self.of(kind, rank, step)), default=0.0)

    def link_factor(self, group: str) -> float:
        """How much slower the links of a group are."""
        factor = 1.0
        for each in self.all:
            if each.kind == "slow-link" and each.word("group") == group:
                factor *= each.number("factor")
        return factor

    def longer_ns(self, group: str, number: int) -> int:
        """How much longer the n-th collective of a group takes (counted from 0)."""
        return sum(
            round(each.number("ms") * 1_000_000)
            for each in self.all
            if each.kind == "long-collective"
            and each.word("group") == group
            and each.number("collective") == number
        )

    def clock(self, rank: int) -> tuple[int, int]:
        """Offset in ns and drift in parts of 10^9 of a rank's clock."""
        found = [each for each in self.all if each.kind == "clock" and each.rank in (None, rank)]
        offset = sum(each.number("offset_us") for each in found)
        drift = sum(each.number("drift_ppm") for each in found)
        return round(offset * 1_000), round(drift * 1_000)


ONE = 1 << 20  # factors are whole numbers of this part, so that times stay whole
TABLE = 997  # factors of kernels are drawn once and used in turn


class Noise:
    """The factors of one run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.run = math.exp(job.noise.run * Random(f"{job.seed}/run").gauss(0, 1))
        draw = Random(f"{job.seed}/kernel")
        self.table = [_whole(math.exp(job.noise.kernel * draw.gauss(0, 1))) for _ in range(TABLE)]
        self._steps = [self._step(step) for step in range(job.steps)]

    def step(self, step: int) -> float:
        """The factor of a step: of the run and its own."""
        return self._steps[step]

    def _step(self, step: int) -> float:
        draw = Random(f"{self.job.seed}/step/{step}")
        spread = _student(draw) if draw.random() < self.job.noise.outliers else draw.gauss(0, 1)
        return self.run * math.exp(self.job.noise.step * spread)


def _student(draw: Random) -> float:
    """A value of Student's t with three degrees of freedom: now and then far out."""
    return draw.gauss(0, 1) / math.sqrt(sum(draw.gauss(0, 1) ** 2 for _ in range(3)) / 3)


def _whole(factor: float) -> int:
    return round(factor * ONE)


def scaled(factor: float) -> int:
    """A factor as a whole number of parts of ONE."""
    return _whole(factor)
