"""Levels of a breakdown: each row's exact contribution to the change of the mean, and rows in whole ns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.contracts.contract import Column, Contract, Ref, computed_contract
from tracewarehouse.display_names import EXPOSED, category_name
from tracewarehouse.present.render.text import plural
from tracewarehouse.result import Provenance, Result

if TYPE_CHECKING:
    from tracewarehouse.compare.stats.many_series import RowTest
    from tracewarehouse.query.selection import Selection


ZERO = Fraction(0)
_LEAST_RATIO = Fraction(2, 100)  # of work, or of the time of each, from which it is said to have changed
LEAST_NET = Fraction(1, 10)  # of the sum of all rows' changes, below which shares of the total mean nothing


class Row(Struct, frozen=True):
    """A row of the mean interval, per side: ns, and calls of its kernels (None if it has no calls).

    `base_sum` and `head_sum` are the full durations of these calls, parts of which others may cover;
    `base_work` and `head_work` what they work on, None if that is not known of all of them.
    `base_replicates` and `head_replicates` are its means in each replicate, for tests.
    """

    part: str
    base: Fraction
    head: Fraction
    base_count: Fraction | None = None
    head_count: Fraction | None = None
    base_sum: Fraction = ZERO
    head_sum: Fraction = ZERO
    of_work: bool = False  # base_count and head_count are FLOP or bytes
    base_work: Fraction | None = None  # in `work_unit`: FLOP, bytes, or what a label counts
    head_work: Fraction | None = None
    work_unit: str | None = None
    joined: str | None = None  # what happened to the kernels that it combines, such as `replaced`
    base_replicates: tuple[float, ...] = ()
    head_replicates: tuple[float, ...] = ()
    test: RowTest | None = None
    folded: int = 0  # the number of rows it combines

    @property
    def delta(self) -> Fraction:
        """Its contribution to the change of the mean."""
        return self.head - self.base

    @property
    def calls(self) -> Fraction | None:
        """The contribution of the call count, or of the work where that of a call changed, at base's mean.

        All of it if base has no calls.
        """
        if self._amounts is None:
            return None
        base, head = self._amounts
        return (head - base) * self.base / base if base else self.delta

    @property
    def speed(self) -> Fraction | None:
        """The contribution of the time of each: what of head is not due to their number."""
        return None if self.calls is None else self.delta - self.calls

    @property
    def _amounts(self) -> tuple[Fraction, Fraction] | None:
        """The calls of both sides, or their work if that of a call changed; None if it has no calls."""
        if self.base_count is None or self.head_count is None:
            return None
        return self._work or (self.base_count, self.head_count)

    @property
    def _work(self) -> tuple[Fraction, Fraction] | None:
        """The work of both sides, if it changed by other factors than 1 and that of the calls."""
        if not (self.base_work and self.head_work and self.base_count and self.head_count):
            return None
        ratio, calls = self.head_work / self.base_work, self.head_count / self.base_count
        changed = _changed(ratio) and (self.of_work or _changed(ratio / calls))
        return (self.base_work, self.head_work) if changed else None

    @property
    def change(self) -> str | None:
        """The kind of change, and how much work or replaced kernels changed; None for combined rows."""
        if self.folded:
            return None
        word, work = self.joined or self._word, self._work
        if work and self.base and word != "unchanged":
            unit = self.work_unit or "work"
            ratio, per = work[1] / work[0], f"time per {unit.removesuffix('s')}"
            time = self.head / self.base / ratio
            per_work = f"{per} {100 * float(time - 1):+.0f} %" if _changed(time) else f"same {per}"
            return f"{word}, {unit} × {float(f'{float(ratio):.3g}')}, {per_work}"
        if self.joined in (None, "fused", "split") or not (self.base and self.base_count and self.head_count):
            return word
        time = self.head / self.head_count / (self.base / self.base_count)
        if not _changed(time):
            return word
        how = self._how_long(self.base_count, self.head_count)
        size = f"{100 * abs(float(time - 1)):.0f} % " if how in ("slower", "faster") else ""
        return f"{word}, and {size}{how} per call"

    @property
    def _word(self) -> str:
        if self._amounts is None or self.calls is None or self.speed is None:
            return "longer" if self.delta > 0 else "shorter" if self.delta else "unchanged"
        if not self.base_count or not self.head_count:
            return "added" if self.head_count else "removed" if self.base_count else "unchanged"
        if not self.calls and not self.speed:
            return "unchanged"
        if abs(self.calls) >= abs(self.speed):
            more_calls = (self.head_count - self.base_count) / self.base_count
            if self.of_work or (self._work and more_calls * self.calls <= _LEAST_RATIO * abs(self.calls)):
                return "more work" if self.calls > 0 else "less work"
            return "more calls" if self.calls > 0 else "fewer calls"
        return self._how_long(*self._amounts)

    def with_labeled(self, unit: str, base: Fraction, head: Fraction) -> Row:
        """With the work that labels count, if its work is not known and its time follows from it."""
        labeled = replace(self, work_unit=unit, base_work=base, head_work=head)
        is_open = self.work_unit is None and any(word in (self.change or "") for word in ("slower", "faster"))
        follows = labeled.speed is not None and 2 * abs(labeled.speed) <= abs(self.delta)
        return labeled if is_open and follows else self

    def _how_long(self, base: Fraction, head: Fraction) -> str:
        """Whether a larger share of each was exposed, more than it took longer."""
        exclusive = self.head / head - self.base / base
        full = self.head_sum / head - self.base_sum / base
        if 2 * full * exclusive < exclusive**2:
            return "more exposed" if exclusive > 0 else "less exposed"
        return "slower" if exclusive > 0 else "faster"


def _changed(ratio: Fraction) -> bool:
    return abs(ratio - 1) >= _LEAST_RATIO


class Level(Struct, frozen=True):
    """One way to split the mean: its rows, the largest change first. They sum to it exactly."""

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

    def with_labeled(self, unit: str, base: Fraction, head: Fraction) -> Level:
        """With the work of a step by labels, where the time of rows of unknown work follows from it."""
        if self.name not in ("kernels", "operators"):
            return self
        return replace(self, rows=tuple(row.with_labeled(unit, base, head) for row in self.rows))

    def top(self, count: int) -> Level:
        """The first `count` rows, and the others combined into one row, so that the sum is unchanged."""
        if len(self.rows) <= count + 1:
            return self
        largest, others = self.rows[:count], self.rows[count:]
        base, head = sum((row.base for row in others), ZERO), sum((row.head for row in others), ZERO)
        combined = Row(f"other ({len(others):,} rows)", base, head, folded=len(others))
        return replace(self, rows=(*largest, combined))

    def result(self, count: int | None = None) -> Result:
        """The rows in whole ns, which sum to the rounded means; `count` rows and the others as one."""
        return result_of(level_contract(self.name, self.per), _rows_in_ns(self, count), self.provenance)


def result_of(contract: Contract, rows: Iterable[Mapping[str, object]], provenance: Provenance) -> Result:
    """Rows as a result with the columns of a contract."""
    from tracewarehouse.duck.arrow import table_of

    return Result(table_of(contract, rows), provenance, contract)


def of_both_sides(base: Provenance, head: Provenance) -> Provenance:
    """The provenance of what is computed from a result of each side."""
    ranks = {**(base.ranks or {}), **(head.ranks or {})} or None
    return replace(base, runs=(*base.runs, *head.runs), ranks=ranks)


WAIT = "exposed_wait"
OWN_WORK = " (own work)"  # ends the row of a rank without communication and waiting
_AWAITED = f"{WAIT} for rank "
_LEAST_CHANGE, _LEAST_TIME = Fraction(1, 100), Fraction(1, 1000)  # of the change; of the mean of base
_MOST_AWAITED = 4


def awaited_rank(part: str) -> str | None:
    """The rank of a row `exposed_wait for rank N`."""
    return part.removeprefix(_AWAITED) if part.startswith(_AWAITED) else None


def with_awaited_folded(rows: Sequence[Row]) -> list[Row]:
    """The rows, of which waits for ranks for which they hardly changed are one row, `exposed_wait`."""
    if all(awaited_rank(row.part) is None for row in rows):
        return list(rows)
    change = abs(sum((row.delta for row in rows), ZERO))
    least = max(_LEAST_CHANGE * change, _LEAST_TIME * sum((row.base for row in rows), ZERO))
    awaited = sorted(filter(lambda row: awaited_rank(row.part), rows), key=lambda row: -abs(row.delta))
    kept_names = [row.part for row in awaited[:_MOST_AWAITED] if abs(row.delta) >= least]
    folded = [row for row in rows if row.part.startswith(WAIT) and row.part not in kept_names]
    other_rows = [row for row in rows if not row.part.startswith(WAIT) or row.part in kept_names]
    return [*other_rows, _sum_of_waits(folded)] if folded else other_rows


def _sum_of_waits(rows: Sequence[Row]) -> Row:
    base, head = (
        tuple(map(sum, zip(*side, strict=True)))
        for side in ([row.base_replicates for row in rows], [row.head_replicates for row in rows])
    )
    return Row(
        WAIT,
        sum((row.base for row in rows), ZERO),
        sum((row.head for row in rows), ZERO),
        base_replicates=base,
        head_replicates=head,
    )


def ranked(rows: Sequence[Row]) -> tuple[Row, ...]:
    """By the size of the change; ties by whether it changed, then a rank's own time first, then by name."""

    def key(row: Row) -> tuple[Fraction, bool, bool, str]:
        return -abs(row.delta), row.change == "unchanged", row.part.endswith(EXPOSED), row.part

    return tuple(sorted(rows, key=key))


def _rows_in_ns(level: Level, count: int | None = None) -> Iterator[dict[str, object]]:
    """Rows in whole ns: base and head by largest remainder, each delta the difference of the two.

    Rows are combined when they are whole, so that a row is the same however many are shown.
    """
    shown = level if count is None else level.top(count)
    base, head = (
        _combined_ns(rounded(values), len(shown.rows))
        for values in ([row.base for row in level.rows], [row.head for row in level.rows])
    )
    # If the changes of the rows cancel so far, shares of the total say nothing.
    gross = sum((abs(row.delta) for row in level.rows), ZERO)
    total = level.delta if abs(level.delta) >= LEAST_NET * gross else ZERO
    for row, base_ns, head_ns in zip(shown.rows, base, head, strict=True):
        calls_ns = None if row.calls is None else round(row.calls)
        delta_ns, test = head_ns - base_ns, row.test
        yield {
            "level": level.name,
            "name": row.part,
            "base_ns": base_ns,
            "head_ns": head_ns,
            "delta_ns": delta_ns,
            "share": float(row.delta / total) if total else None,
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


def _combined_ns(values: Sequence[int], count: int) -> list[int]:
    """The values as `count` ones, the last of which is the sum of the others."""
    return [*values[: count - 1], sum(values[count - 1 :])] if values else []


def rounded(values: Sequence[Fraction]) -> list[int]:
    """Each value rounded up or down so that they sum to their rounded sum: the largest remainders go up."""
    floors = [floor(value) for value in values]
    missing = round(sum(values, ZERO)) - sum(floors)
    by_remainder = sorted(range(len(values)), key=lambda index: (floors[index] - values[index], index))
    for index in by_remainder[:missing]:
        floors[index] += 1
    return floors


SUMMARIES = {
    "breakdown": "Change of the mean by GPU activity and idle cause.",
    "kernels": "Change of the mean by kernel; kernels and those that do their work in head are one row.",
    "operators": "Change of the mean by the innermost operator enclosing the launch.",
    "categories": "Change of the mean by training phase and kernel kind.",
    "modules": "Change of the mean by module; backward counts for the module of its forward.",
    "work": "Change of the mean by family of operators: more or less work, and time per FLOP or byte.",
    "ranks": "Change of the mean by rank: its own time, and the parts of its exposed communication.",
}
CHANGES = (
    "added, removed, more calls, fewer calls, more work, less work, slower, faster, more exposed or less"
    " exposed (same duration, but less or more of it overlapped); of kernels that do the same work in head"
    " under another name replaced, re-typed (another data type), fused or split, and how much slower or"
    " faster a call is; if the work of a call changed, by how much, and the time per FLOP, byte, token or"
    " sample; longer or shorter for rows that do not consist of calls; unchanged"
)


def level_contract(level: str, per: str) -> Contract:
    """The contract of a level's rows."""
    return computed_contract(
        f"account_{level}",
        group="steps",
        summary=SUMMARIES[level],
        requires=(Ref("step_account", 1), Ref("step_kernels", 1)),
        grain=("name",),
        order=("-delta_ns", "name"),
        columns=_columns(per),
    )


def _columns(per: str) -> tuple[Column, ...]:
    calls = "null if the row does not consist of calls"
    work = "of a row of work with (flop) or (bytes) that amount"
    untested = "null if not tested"
    return (
        Column("level", "VARCHAR", "The level."),
        Column("name", "VARCHAR", "The row; the last may combine all others."),
        _ns("base_ns", f"Base: ns of a mean {per}. All rows sum to the mean."),
        _ns("head_ns", f"Head: ns of a mean {per}. All rows sum to the mean."),
        _ns("delta_ns", "head_ns minus base_ns.", signed=True),
        ratio_column(
            "share", "Share of the total change; null if that is below 10 % of the sum of all rows' changes."
        ),
        _ns(
            "calls_ns",
            f"Part of delta_ns due to the call count, or the work of calls, at base's mean, {work}; {calls}.",
            True,
            True,
        ),
        _ns("speed_ns", f"Part of delta_ns due to the time of each: the remainder; {calls}.", True, True),
        _count("base_count", f"Base: calls in a mean {per}, {work}; {calls}."),
        _count("head_count", f"Head: calls in a mean {per}, {work}; {calls}."),
        Column("change", "VARCHAR", f"{CHANGES}; null for combined rows.", null=True),
        ratio_column("low", f"Lower end of the interval of the relative change; {untested}."),
        ratio_column("high", f"Upper end of that interval; {untested}."),
        ratio_column("q", f"p adjusted after Benjamini and Hochberg over the rows of the level; {untested}."),
        Column("significant", "BOOLEAN", f"q is at most alpha; {untested}.", null=True),
    )


def _ns(name: str, doc: str, signed: bool = False, null: bool = False) -> Column:
    return Column(name, "BIGINT", doc, "ns", null=null, signed=signed, aggregate="sum")


def ratio_column(name: str, doc: str) -> Column:
    """A relative change, null if it is unknown."""
    return Column(name, "DOUBLE", doc, "ratio", null=True, signed=True)


def _count(name: str, doc: str) -> Column:
    return Column(name, "DOUBLE", doc, "count", null=True)


_HAS_ATTRIBUTION = "SELECT coalesce(bool_and(wait_attribution), FALSE) AS has_attribution FROM ranks"
# Exposed waits of each step: for the rank that arrived last, or for the rank that caused most of them.
_EXPOSED = """
SELECT run_id, rank, step, waits_for, sum(segment_ns)::BIGINT AS wait_ns
FROM account_segments
WHERE exposure = 'wait' AND step IS NOT NULL
GROUP BY ALL
"""
_EXPOSED_ATTRIBUTED = """
WITH
  share AS (
    SELECT run_id, waiter_rank, instance_id, rank, sum(wait_ns)::BIGINT AS wait_ns
    FROM wait_attribution
    GROUP BY ALL
  ),
  attributed AS (
    SELECT run_id, waiter_rank, instance_id, arg_max(rank, (wait_ns, -rank)) AS rank
    FROM share
    GROUP BY ALL
  )
SELECT
  segment.run_id,
  segment.rank,
  segment.step,
  coalesce(attributed.rank, segment.waits_for) AS waits_for,
  sum(segment.segment_ns)::BIGINT AS wait_ns
FROM account_segments AS segment
LEFT JOIN collective_arrivals AS arrival
  ON arrival.run_id = segment.run_id AND arrival.rank = segment.rank AND arrival.event_id = segment.kernel_id
LEFT JOIN attributed
  ON attributed.run_id = segment.run_id
  AND attributed.waiter_rank = segment.rank
  AND attributed.instance_id = arrival.instance_id
WHERE segment.exposure = 'wait' AND segment.step IS NOT NULL
GROUP BY ALL
"""
_LONG = 1.5  # times the median step of its run, from which a step is a long one
_EXPLAINED = 0.5  # of what the mean moved beyond the median, the least share that long steps explain
COMPLETE_STEPS = "SELECT run_id, rank, step, period_ns AS length_ns FROM steps WHERE NOT partial"
# Each long step, and what grew most in it on one rank: rather its own time than its waiting for others.
_LONG_STEPS = """
WITH
  whole AS (SELECT run_id, step, avg(length_ns) AS step_ns FROM complete GROUP BY ALL),
  usual AS (SELECT run_id, median(step_ns) AS step_ns FROM whole GROUP BY run_id),
  long AS (
    SELECT
      whole.run_id,
      whole.step,
      whole.step_ns / usual.step_ns AS ratio,
      whole.step_ns - usual.step_ns AS excess_ns,
      (SELECT count(*) FROM whole) AS steps
    FROM whole
    JOIN usual USING (run_id)
    WHERE whole.step_ns > $long * usual.step_ns
  ),
  counted AS (SELECT run_id, rank, count(*) AS steps FROM complete GROUP BY ALL),
  part AS (
    SELECT run_id, rank, step, category, sum(COLUMNS('category_ns|self_ns')) AS part_ns
    FROM account
    SEMI JOIN complete USING (run_id, rank, step)
    GROUP BY ALL
  ),
  grown AS (
    SELECT
      part.*,
      part_ns - (sum(part_ns) OVER (PARTITION BY run_id, rank, category) - part_ns)
        / greatest(counted.steps - 1, 1) AS grown_ns
    FROM part
    JOIN counted USING (run_id, rank)
  )
SELECT
  run_id,
  step,
  any_value(ratio) AS ratio,
  any_value(excess_ns) AS excess_ns,
  any_value(steps) AS steps,
  arg_max(
    {'rank': rank, 'category': category},
    (category NOT IN ('exposed_wait', 'waiting') AND 2 * grown_ns > excess_ns, grown_ns)
  ) AS cause
FROM long
JOIN grown USING (run_id, step)
GROUP BY run_id, step
ORDER BY excess_ns DESC, run_id, step
"""


def long_steps(side: Selection, beyond_ns: float, on_host: bool) -> str | None:
    """The long steps that move the mean of a side by `beyond_ns` more than its median, and the cause."""
    from tracewarehouse.duck.engine import scratch

    account = side.analyze("host_account" if on_host else "step_account")
    with scratch() as con:
        con.register("account", account.arrow())
        con.register("complete", side.query(COMPLETE_STEPS).arrow())
        long_rows = con.execute(_LONG_STEPS, {"long": _LONG}).fetchall()
    if not long_rows or sum(row[3] for row in long_rows) < _EXPLAINED * beyond_ns * long_rows[0][4]:
        return None
    run, step, *_, steps, cause = long_rows[0]
    shortest, longest = (f"{pick(row[2] for row in long_rows):.3g}" for pick in (min, max))
    ratio = longest if shortest == longest else f"{shortest} to {longest}"
    of_run = f" of {run}" if len(side.selected()) > 1 else ""
    on_rank = f" on rank {cause['rank']}" if any(len(run.ranks) > 1 for run in side.selected()) else ""
    place = f"step {step}{of_run}: {category_name(cause['category'])}{on_rank}"
    return f"{len(long_rows):,} of {plural(steps, 'step')} took {ratio} × as long ({place})"


def both_have_attribution(base: Selection, head: Selection) -> bool:
    """Whether attribution is derived for all ranks of both sides."""
    return all(side.query(_HAS_ATTRIBUTION).rows()[0]["has_attribution"] for side in (base, head))


def exposed_waits(side: Selection, has_attribution: bool) -> Result:
    """Exposed wait of each rank and step, by the rank that it waits for; it sums to that of `step_account`.

    With `has_attribution`, a wait counts for the rank with the largest share of its attribution.
    """
    return side.query(_EXPOSED_ATTRIBUTED if has_attribution else _EXPOSED)
