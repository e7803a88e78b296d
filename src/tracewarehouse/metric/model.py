"""A metric, and what it is of some runs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract

BY_STEP = "by_step"  # the parameter of analyses that tell steps apart on request


@dataclass(frozen=True)
class Metric:
    """A measure of an analysis, and the values that other columns of its rows are to have."""

    text: str
    contract: Contract
    column: Column
    filters: tuple[tuple[Column, object], ...] = ()

    def __str__(self) -> str:
        return self.text

    @property
    def tells_steps(self) -> bool:
        """Whether its rows can tell steps, and no filter names one of them."""
        return "step" in self.contract.grain and not any(column.name == "step" for column, _ in self.filters)

    @property
    def asks_for_steps(self) -> bool:
        """Whether its analysis tells steps only where a parameter asks for it."""
        return any(param.name == BY_STEP for param in self.contract.params)

    @property
    def is_of_steps(self) -> bool:
        """Whether it measures steps themselves, not parts of them: by contract there is a row per step."""
        parts = set(self.contract.grain) - {"run_id", "rank", "device", "step"}
        return self.tells_steps and not parts and self.column.fold == "sum"

    def params(self, by_step: bool) -> dict[str, object]:
        """What its analysis is run with."""
        return {BY_STEP: by_step} if self.asks_for_steps else {}

    def per(self, by_step: bool) -> str:
        """What one value is of, in words."""
        if self.column.fold != "sum":
            return "of complete steps" if by_step else "of the run"
        if self.is_of_steps and by_step:
            return "of the median complete step, mean of its ranks"
        return "per complete step and rank" if by_step else "per rank"


@dataclass(frozen=True)
class RunValue:
    """A metric of one run; `value` and `mean` are None where nothing tells it, for the `reason`.

    `value` is the metric as it is defined; `mean` the mean over ranks and complete steps, the same but for a
    measure of steps. `steps`: each complete step, the mean of its ranks, in order; empty where none are told.
    `rows` of the analysis were taken.
    """

    run: str
    value: float | None = None
    mean: float | None = None
    steps: tuple[float, ...] = ()
    ranks: int = 0
    rows: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class Measured:
    """A metric of some runs, in their order of time; `per` says what a value is of."""

    metric: Metric
    per: str
    runs: tuple[RunValue, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """The values that are known."""
        return tuple(each.value for each in self.runs if each.value is not None)

    @property
    def median(self) -> float | None:
        """The median of the values; None where no run tells."""
        return median(self.values) if self.values else None

    @property
    def mean(self) -> float | None:
        """The mean of the runs' means; None where no run tells."""
        known = [each.mean for each in self.runs if each.mean is not None]
        return fmean(known) if known else None

    @property
    def reason(self) -> str | None:
        """Why runs do not tell, where some do not."""
        return ", ".join(sorted({each.reason for each in self.runs if each.reason})) or None
