"""Injected faults by rank and step, and the random factors of a run."""

from __future__ import annotations

import math
from random import Random

from tracewarehouse.simulation.job import Injection, Job
from tracewarehouse.simulation.kernels import Variant

# Why a fault of one rank makes it late; of slow ranks by what is slow.
_CAUSES = {
    "compute": "computation",
    "host": "host",
    "data": "data",
    "copies": "copies",
    "slow-kernel": "computation",
    "extra-kernel": "computation",
    "dataloader-stall": "data",
    "blocking-item": "host",
}


class Faults:
    """The injections of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.all = job.injections

    def of(self, kind: str, rank: int, step: int) -> list[Injection]:
        """The injections of a kind that apply to a rank in a step (zero-based)."""
        return [each for each in self.all if each.kind == kind and each.applies_to(rank, step)]

    def ever(self, kind: str, rank: int) -> Injection | None:
        """The first injection of a kind that applies to a rank in any step."""
        return next((each for each in self.all if each.kind == kind and each.rank in (None, rank)), None)

    def variant(self, stage: int, rank: int, step: int) -> Variant:
        """The program variant that the rank runs in a step."""
        return Variant(
            stage,
            frozenset(each.text_value("kernel") for each in self.of("removed-kernel", rank, step)),
            sum(round(each.number("us") * 1_000) for each in self.of("extra-kernel", rank, step)),
            bool(self.of("blocking-item", rank, step)),
            not self.of("no-overlap", rank, step),
            sum(round(each.number("mb") * 1_000_000) for each in self.of("growing-memory", rank, step)),
        )

    def factor(self, what: str, rank: int, step: int) -> float:
        """Slowdown of a rank in `compute`, `host`, `data` or `copies`."""
        factor = 1.0
        for each in self.of("slow-rank", rank, step):
            if each.text_value("what") == what:
                factor *= each.number("factor")
        return factor

    def kernel_factors(self, rank: int, step: int) -> dict[str, float]:
        """Slowdown of kernels by key."""
        factors: dict[str, float] = {}
        for each in self.of("slow-kernel", rank, step):
            key = each.text_value("kernel")
            factors[key] = factors.get(key, 1.0) * (1 + each.number("percent") / 100)
        return factors

    def stall_ns(self, rank: int, step: int) -> int:
        """Additional time of the data loader."""
        return sum(round(each.number("ms") * 1_000_000) for each in self.of("dataloader-stall", rank, step))

    def share(self, kind: str, rank: int, step: int) -> float:
        """Share of a rank's activities of a step that is lost."""
        return max((each.number("share") for each in self.of(kind, rank, step)), default=0.0)

    def late_ranks(self) -> list[tuple[int, str]]:
        """(rank, cause) of each rank that a fault makes late at collectives, if its trace is written."""
        found = set()
        for each in self.all:
            cause = each.text_value("what") if each.kind == "slow-rank" else each.kind
            if each.rank is not None and cause in _CAUSES and not self.ever("missing-rank", each.rank):
                found.add((each.rank, _CAUSES[cause]))
        return sorted(found)

    def link_factor(self, group: str) -> float:
        """Slowdown of the links of a group."""
        factor = 1.0
        for each in self.all:
            if each.kind == "slow-link" and each.text_value("group") == group:
                factor *= each.number("factor")
        return factor

    def longer_ns(self, group: str, number: int) -> int:
        """Additional time of the n-th collective of a group (zero-based)."""
        return sum(
            round(each.number("ms") * 1_000_000)
            for each in self.all
            if each.kind == "long-collective"
            and each.text_value("group") == group
            and each.number("collective") == number
        )

    def clock(self, rank: int) -> tuple[int, int]:
        """Offset in ns and drift in parts per 10^9 of a rank's clock."""
        clocks = [each for each in self.all if each.kind == "clock" and each.rank in (None, rank)]
        offset = sum(each.number("offset_us") for each in clocks)
        drift = sum(each.number("drift_ppm") for each in clocks)
        return round(offset * 1_000), round(drift * 1_000)


ONE = 1 << 20  # fixed-point factors, so that times are integers
TABLE = 997  # number of kernel factors, drawn once and used in rotation


class Noise:
    """The random factors of one run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.run = math.exp(job.noise.run * Random(f"{job.seed}/run").gauss(0, 1))
        draw = Random(f"{job.seed}/kernel")
        self.table = [scaled(math.exp(job.noise.kernel * draw.gauss(0, 1))) for _ in range(TABLE)]
        self._steps = [self._step(step) for step in range(job.steps)]

    def step(self, step: int) -> float:
        """The factor of a step, including that of the run."""
        return self._steps[step]

    def _step(self, step: int) -> float:
        draw = Random(f"{self.job.seed}/step/{step}")
        spread = _student(draw) if draw.random() < self.job.noise.outliers else draw.gauss(0, 1)
        return self.run * math.exp(self.job.noise.step * spread)


def _student(draw: Random) -> float:
    """A value of Student's t distribution with three degrees of freedom, which has heavy tails."""
    return draw.gauss(0, 1) / math.sqrt(sum(draw.gauss(0, 1) ** 2 for _ in range(3)) / 3)


def scaled(factor: float) -> int:
    """A factor as a fixed-point number."""
    return round(factor * ONE)
