"""Measurements: runs of a side, rows of the table, and cases that produce rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bench import Bench


class WrongAnswer(Exception):
    """A side returned a wrong result, so its time is meaningless."""


class Unmeasured(Exception):
    """Why a row has no figure."""


@dataclass(frozen=True)
class Run:
    """One measured process: wall and CPU seconds (of the measured part), peak memory, and result."""

    seconds: float
    cpu_s: float
    peak_bytes: int
    answer: Any = None


@dataclass(frozen=True)
class Target:
    """A bound on a figure, and an optional better goal."""

    bound: float
    unit: str = "×"
    at_least: bool = False
    below: bool = False
    aim: float | None = None

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "<" if self.below else "≤"
        aim = "" if self.aim is None else f", aim {self.aim:g}"
        return f"{sign} {self.bound:g}{aim} {self.unit}"

    def met(self, figure: float) -> bool:
        """Whether a figure meets the bound."""
        if self.at_least:
            return figure >= self.bound
        return figure < self.bound if self.below else figure <= self.bound


@dataclass(frozen=True)
class Row:
    """A line of the table. `figures` are the measured ones; `sides` has the values they are computed from.

    A row without a target has no verdict; without figures, `note` is the reason.
    """

    case: str
    what: str
    target: Target | None = None
    figures: tuple[float, ...] = ()
    unit: str = ""
    sides: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    wrong: bool = False

    @property
    def median(self) -> float | None:
        """The median figure; None without figures."""
        return median(self.figures) if self.figures else None

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None without a target or figures."""
        if self.wrong:
            return False
        return None if self.target is None or self.median is None else self.target.met(self.median)

    def as_json(self) -> dict[str, Any]:
        """The row as JSON types."""
        words = None if self.target is None else str(self.target)
        return {**asdict(self), "wanted": words, "median": self.median, "met": self.met}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Row:
        """The row from JSON types."""
        row = {each.name: stored[each.name] for each in fields(cls)}
        target = row["target"] and Target(**row["target"])
        return cls(**{**row, "target": target, "figures": tuple(row["figures"])})


@dataclass(frozen=True)
class Case:
    """One or several rows of the table that share their runs."""

    name: str
    about: str
    rows: Callable[[Bench], Iterator[Row]]


def check(holds: bool, message: str) -> None:
    """Raises WrongAnswer if `holds` is false."""
    if not holds:
        raise WrongAnswer(message)


def ratios(over: Sequence[Run], under: Sequence[Run], of: str = "seconds") -> tuple[float, ...]:
    """The ratio of both sides in each turn."""
    return tuple(getattr(a, of) / getattr(b, of) for a, b in zip(over, under, strict=True))


def seconds(runs: Sequence[Run], of: str = "seconds") -> str:
    """Median and spread of some runs."""
    taken = [getattr(run, of) for run in runs]
    return f"{median(taken):.3g} s ({min(taken):.3g}–{max(taken):.3g})"
