"""The rows of an account: what each part added to the change of the mean, exactly, and in whole ns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Change, Contract, Ref

if TYPE_CHECKING:
    from tracewarehouse.result import Provenance, Result
    from tracewarehouse.stats import RowTest


ZERO = Fraction(0)


@dataclass(frozen=True)
class Row:
    """A part of the mean unit, per side: ns, and calls of its kernels (None where it is not made of calls).

    `base_sum` and `head_sum` are the whole lengths of these calls, of which others may cover a part.
    `base_units` and `head_units` are its means in each replicate, for tests.
    """

    part: str
    base: Fraction
    head: Fraction
    base_count: Fraction | None = None
    head_count: Fraction | None = None
    base_sum: Fraction = ZERO
    head_sum: Fraction = ZERO
    renamed: bool = False
    base_units: tuple[float, ...] = ()
    head_units: tuple[float, ...] = ()
    test: RowTest | None = None
    folded: int = 0  # rows that it stands for

    @property
    def delta(self) -> Fraction:
        """What it added."""
        return self.head - self.base

    @property
    def calls(self) -> Fraction | None:
        """What more or fewer calls added, at the mean of base; all of it where base has no calls."""
        if self.base_count is None or self.head_count is None:
            return None
        if not self.base_count:
            return self.delta
        return (self.head_count - self.base_count) * self.base / self.base_count

    @property
    def speed(self) -> Fraction | None:
        """What slower or faster calls added: the calls of head times the change of the mean."""
        return None if self.calls is None else self.delta - self.calls

    @property
    def change(self) -> str | None:
        """What happened, in words; None for rows folded into one."""
        if self.folded:
            return None
        if self.renamed:
            return "replaced"
        if self.calls is None or self.speed is None:
            return "longer" if self.delta > 0 else "shorter" if self.delta else "unchanged"
        if not self.base_count or not self.head_count:
            return "added" if self.head_count else "removed" if self.base_count else "unchanged"
        if not self.calls and not self.speed:
            return "unchanged"
        if abs(self.calls) >= abs(self.speed):
            return "more calls" if self.calls > 0 else "fewer calls"
        return self._pace(self.base_count, self.head_count)

    def _pace(self, base_count: Fraction, head_count: Fraction) -> str:
        """Whether the calls took longer, or more of them was left uncovered."""
        exclusive = self.head / head_count - self.base / base_count
        whole = self.head_sum / head_count - self.base_sum / base_count
        if 2 * abs(exclusive - whole) > abs(exclusive):
            return "more exposed" if exclusive > 0 else "less exposed"
        return "slower" if exclusive > 0 else "faster"


@dataclass(frozen=True)
class Level:
    """One way to split the mean: its rows, the largest change first. They add up to it exactly."""

    name: str
    rows: tuple[Row, ...]
    per: str
    provenance: Provenance

    @property
    def base(self) -> Fraction:
        """The mean of base."""
        return sum((row.base for row in self.rows), ZERO)

    @property
    def head(self) -> Fraction:
        """The mean of head."""
        return sum((row.head for row in self.rows), ZERO)

    @property
    def delta(self) -> Fraction:
        """The change of the mean."""
        return self.head - self.base

    def top(self, count: int) -> Level:
        """The first `count` rows, and all others as one row, so that the sum stays."""
        if len(self.rows) <= count + 1:
            return self
        first, rest = self.rows[:count], self.rows[count:]
        return replace(self, rows=(*first, _folded(rest)))

    def result(self, count: int | None = None) -> Result:
        """The rows in whole ns, which add up to the rounded means; folded to `count` rows and the rest."""
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.result import Result

        level = self if count is None else self.top(count)
        contract = promised(self.name, self.per)
        return Result(table_of(contract, _told(level)), self.provenance, contract)


def ranked(rows: Sequence[Row]) -> tuple[Row, ...]:
    """By the size of the change; of those alike first what changed, and a rank's own time."""
    return tuple(sorted(rows, key=_place))


def _place(row: Row) -> tuple[Fraction, bool, bool, str]:
    return -abs(row.delta), row.change == "unchanged", row.part.endswith("exposed_comm"), row.part


def _folded(rows: Sequence[Row]) -> Row:
    """Many rows as one."""
    base, head = (sum(values, ZERO) for values in zip(*((row.base, row.head) for row in rows), strict=True))
    return Row(f"other ({len(rows):,} rows)", base, head, folded=len(rows))


def _told(level: Level) -> Iterator[dict[str, object]]:
    """Rows with whole ns: base and head by largest remainder, each delta the difference of the two."""
    base, head = rounded([row.base for row in level.rows]), rounded([row.head for row in level.rows])
    for row, base_ns, head_ns in zip(level.rows, base, head, strict=True):
        calls_ns = None if row.calls is None else round(row.calls)
        delta_ns, test = head_ns - base_ns, row.test
        yield {
            "level": level.name,
            "name": row.part,
            "base_ns": base_ns,
            "head_ns": head_ns,
            "delta_ns": delta_ns,
            "share": float(row.delta / level.delta) if level.delta else None,
            "calls_ns": calls_ns,
            "speed_ns": None if calls_ns is None else delta_ns - calls_ns,
            "base_count": None if row.base_count is None else float(row.base_count),
            "head_count": None if row.head_count is None else float(row.head_count),
            "change": row.change,
            "low": test.low if test else None,
            "high": test.high if test else None,
            "q": test.q if test else None,
            "significant": test.significant if test and test.tested else None,
        }


SUMMARIES = {
    "breakdown": "What changed, by what the devices did, or why they stood idle.",
    "kernels": "What changed, by kernel; a kernel that goes by another name at the same place is one row.",
    "operators": "What changed, by the innermost operator around the launch of the kernels.",
    "categories": "What changed, by pass of training and kind of kernel.",
    "ranks": "What changed, by rank: its own time, and what it spent in communication that nothing hid.",
}
CHANGES = (
    "added, removed, replaced (another kernel at the same place), more calls, fewer calls, slower, faster,"
    " more exposed or less exposed (calls as long, but less or more of them under others);"
    " of what is not made of calls longer or shorter; unchanged"
)


def promised(level: str, per: str) -> Contract:
    """The contract of a level's rows; `per` says what a unit is."""
    return Contract(
        kind="analysis",
        scope="run",
        name=f"account_{level}",
        version=1,
        group="steps",
        summary=SUMMARIES[level],
        requires=(Ref("step_account", 1), Ref("step_kernels", 1)),
        needs=(),
        grain=("name",),
        order=("-delta_ns", "name"),
        params=(),
        columns=_columns(per),
        changes=(Change(1, "First version."),),
        deprecated=None,
        transient=False,
        derived=None,
        definition=None,
        body="",
        body_line=0,
        source=f"account_{level}",
    )


def _columns(per: str) -> tuple[Column, ...]:
    calls = "null for what is not made of calls"
    untested = "null where not tested"
    return (
        Column("level", "VARCHAR", "The level."),
        Column("name", "VARCHAR", "The part; the last may be all others together."),
        _ns("base_ns", f"Base: ns of a mean {per}. All rows add up to the mean."),
        _ns("head_ns", f"Head: ns of a mean {per}. All rows add up to the mean."),
        _ns("delta_ns", "head_ns less base_ns.", signed=True),
        _ratio("share", "Part of the whole change; null where there is none."),
        _ns(
            "calls_ns",
            f"Of delta_ns what more or fewer calls made, at the mean of base; {calls}.",
            True,
            True,
        ),
        _ns("speed_ns", f"Of delta_ns what slower or faster calls made: the rest; {calls}.", True, True),
        _count("base_count", f"Base: calls in a mean {per}; {calls}."),
        _count("head_count", f"Head: calls in a mean {per}; {calls}."),
        Column("change", "VARCHAR", f"{CHANGES}; null for rows taken together.", null=True),
        _ratio("low", f"Where the interval of the relative change begins; {untested}."),
        _ratio("high", f"Where it ends; {untested}."),
        _ratio("q", f"p after Benjamini and Hochberg over the rows of the level; {untested}."),
        Column("significant", "BOOLEAN", f"q is at most alpha; {untested}.", null=True),
    )


def _ns(name: str, doc: str, signed: bool = False, null: bool = False) -> Column:
    return Column(name, "BIGINT", doc, "ns", null=null, signed=signed, fold="sum")


def _ratio(name: str, doc: str) -> Column:
    return Column(name, "DOUBLE", doc, "ratio", null=True, signed=True)


def _count(name: str, doc: str) -> Column:
    return Column(name, "DOUBLE", doc, "count", null=True)


def rounded(values: Sequence[Fraction]) -> list[int]:
    """Each value rounded up or down so that all add up to their rounded sum: the largest remainders go up."""
    whole = [floor(value) for value in values]
    missing = round(sum(values, Fraction(0))) - sum(whole)
    order = sorted(range(len(values)), key=lambda at: (whole[at] - values[at], at))
    for at in order[:missing]:
        whole[at] += 1
    return whole
