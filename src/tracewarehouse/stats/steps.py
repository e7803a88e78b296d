"""One side of a comparison: the times of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from tracewarehouse.errors import ParamError


@dataclass(frozen=True)
class Steps:
    """For each run the times of its steps in ns, in order of time. Raises ParamError for less than 1 ns."""

    runs: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        shortest = min(self.times, default=1)
        if shortest < 1:
            raise ParamError(f"a step of {shortest} ns cannot be compared", "leave that step out")

    @property
    def times(self) -> tuple[int, ...]:
        """The steps of all runs, in ns."""
        return tuple(chain.from_iterable(self.runs))

    @property
    def present(self) -> tuple[tuple[int, ...], ...]:
        """The runs that have steps."""
        return tuple(run for run in self.runs if run)
