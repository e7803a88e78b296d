"""For which ranks the others wait at collectives, on both sides, as time per step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewarehouse.result import Field

if TYPE_CHECKING:
    from tracewarehouse.result import Result
    from tracewarehouse.runs.selection import Selection

NOTICEABLE = 0.01  # share of base's mean step from which a row is worth reading, as for stragglers
_STEPS = """
SELECT count(*) AS steps, coalesce(sum(period_ns), 0)::BIGINT AS period_ns
FROM steps
WHERE NOT partial
"""
_HAS_BLAME = "SELECT coalesce(bool_and(blame), FALSE) AS has_blame FROM ranks"
# Waits in complete steps at synchronizing collectives, by the rank that arrived last.
_ARRIVED = """
SELECT arrival.last_rank AS waits_for, sum(arrival.wait_ns)::BIGINT AS wait_ns
FROM collective_arrivals AS arrival
JOIN steps ON steps.run_id = arrival.run_id AND steps.rank = arrival.rank AND steps.step = arrival.step
WHERE NOT steps.partial AND arrival.wait_ns > 0
GROUP BY arrival.last_rank
"""
# The same by the rank that caused them.
_BLAMED = """
SELECT blame.rank AS waits_for, sum(blame.wait_ns)::BIGINT AS wait_ns
FROM blame
JOIN steps ON steps.run_id = blame.run_id AND steps.rank = blame.waiter_rank AND steps.step = blame.step
WHERE NOT steps.partial
GROUP BY blame.rank
"""
# Exposed waits of each step: for the rank that arrived last, or for the rank with the largest share of blame.
_EXPOSED = """
SELECT run_id, rank, step, waits_for, sum(segment_ns)::BIGINT AS wait_ns
FROM account_segments
WHERE exposure = 'wait' AND step IS NOT NULL
GROUP BY ALL
"""
_EXPOSED_BLAMED = """
WITH
  share AS (
    SELECT run_id, waiter_rank, instance_id, rank, sum(wait_ns)::BIGINT AS wait_ns
    FROM blame
    GROUP BY ALL
  ),
  blamed AS (
    SELECT run_id, waiter_rank, instance_id, arg_max(rank, (wait_ns, -rank)) AS rank
    FROM share
    GROUP BY ALL
  )
SELECT
  segment.run_id,
  segment.rank,
  segment.step,
  coalesce(blamed.rank, segment.waits_for) AS waits_for,
  sum(segment.segment_ns)::BIGINT AS wait_ns
FROM account_segments AS segment
LEFT JOIN collective_arrivals AS arrival
  ON arrival.run_id = segment.run_id AND arrival.rank = segment.rank AND arrival.event_id = segment.kernel_id
LEFT JOIN blamed
  ON blamed.run_id = segment.run_id
  AND blamed.waiter_rank = segment.rank
  AND blamed.instance_id = arrival.instance_id
WHERE segment.exposure = 'wait' AND segment.step IS NOT NULL
GROUP BY ALL
"""
_FIELDS = (
    Field("waits_for", "INTEGER"),
    Field("evidence", "VARCHAR"),
    Field("base_ns", "DOUBLE", "ns"),
    Field("head_ns", "DOUBLE", "ns"),
    Field("delta_ns", "DOUBLE", "ns"),
)


@dataclass(frozen=True)
class Waits:
    """Mean wait per step and rank for each rank, the largest change first.

    `evidence` is `blame` if it is derived on both sides: waits count for the rank that caused them, else for
    the one that arrived last.
    """

    rows: Result = field(repr=False)
    step_ns: float  # the mean step of base

    @property
    def changed(self) -> list[dict[str, Any]]:
        """The rows that changed noticeably."""
        return [row for row in self.rows.rows() if abs(row["delta_ns"]) >= NOTICEABLE * self.step_ns]


def waits(base: Selection, head: Selection) -> Waits | None:
    """Waits at synchronizing collectives; None if there are none, or a side has no complete step."""
    from tracewarehouse.result import from_rows

    sides = base, head
    (base_steps,), (head_steps,) = (side.query_all(_STEPS).rows() for side in sides)
    if not base_steps["steps"] or not head_steps["steps"]:
        return None
    has_blame = both_have_blame(*sides)
    found = [side.query_all(_BLAMED if has_blame else _ARRIVED).rows() for side in sides]
    before, after = (Counter({row["waits_for"]: row["wait_ns"] for row in rows}) for rows in found)
    evidence = "blame" if has_blame else "last to arrive"
    rows = []
    for rank in {*before, *after}:
        base_ns, head_ns = before[rank] / base_steps["steps"], after[rank] / head_steps["steps"]
        rows.append((rank, evidence, base_ns, head_ns, head_ns - base_ns))
    rows.sort(key=lambda row: (-abs(row[-1]), row[0]))
    mean_step_ns = base_steps["period_ns"] / base_steps["steps"]
    return Waits(from_rows(_FIELDS, rows), mean_step_ns) if rows else None


def both_have_blame(base: Selection, head: Selection) -> bool:
    """Whether blame is derived for all ranks of both sides."""
    return all(side.query_all(_HAS_BLAME).rows()[0]["has_blame"] for side in (base, head))


def exposed_waits(side: Selection, has_blame: bool) -> Result:
    """Exposed wait of each rank and step, by the rank that it waits for; it sums to that of `step_account`.

    With `has_blame`, a wait counts for the rank with the largest share of its blame.
    """
    return side.query_all(_EXPOSED_BLAMED if has_blame else _EXPOSED)
