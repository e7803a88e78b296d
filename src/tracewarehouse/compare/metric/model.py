"""A metric, and its values for some runs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median

from tracewarehouse.contracts.contract import Column, Contract

BY_STEP = "by_step"  # the parameter of analyses with optional steps


@dataclass(frozen=True)
class Metric:
    """A measure of an analysis, with filters on other columns of its rows."""

    text: str
    contract: Contract
    column: Column
    filters: tuple[tuple[Column, object], ...] = ()
    # A run without a matching row has the sum 0, instead of no value.
    absent_is_zero: bool = False

    def __str__(self) -> str:
        return self.text

    @property
    def has_steps(self) -> bool:
        """Whether its rows have steps, and no filter selects one."""
        return "step" in self.contract.grain and not any(column.name == "step" for column, _ in self.filters)

    @property
    def steps_optional(self) -> bool:
        """Whether its analysis has steps only if a parameter requests them."""
        return any(param.name == BY_STEP for param in self.contract.params)

    @property
    def measures_steps(self) -> bool:
        """Whether it measures entire steps, not parts of them: the contract has one row per step."""
        other_keys = set(self.contract.grain) - {"run_id", "rank", "device", "step"}
        return self.has_steps and not other_keys and self.column.fold == "sum"

    def params(self, by_step: bool) -> dict[str, object]:
        """The parameters of its analysis."""
        return {BY_STEP: by_step} if self.steps_optional else {}

    def per(self, by_step: bool) -> str:
        """What one value refers to, in words."""
        if self.column.fold != "sum":
            return "of complete steps" if by_step else "of the run"
        if self.measures_steps and by_step:
            return "of the median complete step, mean of its ranks"
        return "per complete step and rank" if by_step else "per rank"


@dataclass(frozen=True)
class RunValue:
    """A metric of one run; `value` and `mean` are None if it is unknown, for the `reason`.

    `value` is the metric as defined; `mean` the mean over ranks and complete steps, the same except for a
    measure of entire steps. `steps`: each complete step as the mean of its ranks, in order; empty without
    steps. `rows` of the analysis were used.
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
    """A metric of some runs in time order; `per` is what one value refers to."""

    metric: Metric
    per: str
    runs: tuple[RunValue, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """The known values."""
        return tuple(each.value for each in self.runs if each.value is not None)

    @property
    def median(self) -> float | None:
        """The median of the values; None if no run has one."""
        return median(self.values) if self.values else None

    @property
    def mean(self) -> float | None:
        """The mean of the runs' means; None if no run has one."""
        known = [each.mean for each in self.runs if each.mean is not None]
        return fmean(known) if known else None

    @property
    def reason(self) -> str | None:
        """Why runs have no value; None if all have one."""
        return ", ".join(sorted({each.reason for each in self.runs if each.reason})) or None
