"""What is measured: runs of a side, rows of the table, and cases that give rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bench import Bench


class WrongAnswer(Exception):
    """A side answered, and not what it must answer: its time says nothing."""


class Unmeasured(Exception):
    """Why a row has no figure here."""


@dataclass(frozen=True)
class Run:
    """One measured process: wall and CPU seconds (of its measured part), its highest memory, its answer."""

    seconds: float
    cpu_s: float
    peak_bytes: int
    answer: Any = None


@dataclass(frozen=True)
class Target:
    """A bound on a figure, and the better one that is aimed for."""

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
        """Whether a figure keeps the bound."""
        if self.at_least:
            return figure >= self.bound
        return figure < self.bound if self.below else figure <= self.bound


@dataclass(frozen=True)
class Row:
    """A line of the table. `figures` are the measured ones; `sides` gives what they come from, with units.

    Without a target the row is told and not judged; without figures `note` says why.
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
        """The median figure; None where nothing was measured."""
        return median(self.figures) if self.figures else None

    @property
    def met(self) -> bool | None:
        """Whether the median keeps the target; None where there is nothing to judge."""
        if self.wrong:
            return False
        return None if self.target is None or self.median is None else self.target.met(self.median)

    def told(self) -> dict[str, Any]:
        """The row as JSON has it."""
        words = None if self.target is None else str(self.target)
        return {**asdict(self), "wanted": words, "median": self.median, "met": self.met}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Row:
        """The row that JSON tells of."""
        row = {each.name: told[each.name] for each in fields(cls)}
        target = row["target"] and Target(**row["target"])
        return cls(**{**row, "target": target, "figures": tuple(row["figures"])})


@dataclass(frozen=True)
class Case:
    """A row of the table of targets, or a few that share their runs."""

    name: str
    about: str
    rows: Callable[[Bench], Iterator[Row]]


def check(holds: bool, message: str) -> None:
    """Raises WrongAnswer unless it holds."""
    if not holds:
        raise WrongAnswer(message)


def ratios(over: Sequence[Run], under: Sequence[Run], of: str = "seconds") -> tuple[float, ...]:
    """How many times as much the first side took, turn by turn: both ran one after the other."""
    return tuple(getattr(a, of) / getattr(b, of) for a, b in zip(over, under, strict=True))


def seconds(runs: Sequence[Run], of: str = "seconds") -> str:
    """Median and spread of some runs."""
    taken = [getattr(run, of) for run in runs]
    return f"{median(taken):.3g} s ({min(taken):.3g}–{max(taken):.3g})"
