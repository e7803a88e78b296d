"""Which stretches of a rank are asked for: steps, annotations, or all of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tracewarehouse.duck.engine import Connection
from tracewarehouse.errors import ParamError

# What finding the scopes reads.
READS = ("steps", "events", "annotations", "kernels", "runtime")
_NOTE = re.compile(r"annotation (?P<name>.+)#\d+", re.DOTALL)

Row = dict[str, Any]

# Every scope there is, with its thread. A lone step counts as complete: there is nothing better.
_ALL = """
WITH
  step AS (
    SELECT
      steps.run_id, steps.rank, 'step ' || steps.step AS scope, steps.host_start_ns AS start_ns,
      steps.host_start_ns + steps.host_ns AS end_ns, mark.pid, mark.tid, FALSE AS entire_trace,
      NOT steps.partial OR bool_and(steps.partial) OVER (PARTITION BY steps.run_id, steps.rank) AS complete
    FROM steps
    JOIN events AS mark
      ON mark.run_id = steps.run_id AND mark.rank = steps.rank AND mark.event_id = steps.event_id
  ),
  note AS (
    SELECT
      run_id, rank,
      'annotation ' || name || '#' || row_number() OVER (
        PARTITION BY run_id, rank, name ORDER BY ts_ns, event_id
      ) - 1 AS scope,
      ts_ns AS start_ns, ts_ns + dur_ns AS end_ns, pid, tid, FALSE AS entire_trace, FALSE AS complete
    FROM annotations
    WHERE NOT on_gpu AND name IN (SELECT unnest($names))
  ),
  host AS (
    SELECT run_id, rank, pid, tid, min(ts_ns) AS start_ns, max(ts_ns + dur_ns) AS end_ns, count(*) AS slices
    FROM events
    WHERE pre IS NOT NULL AND category IN (SELECT api FROM runtime UNION ALL SELECT 'cpu_op')
    GROUP BY run_id, rank, pid, tid
  ),
  thread AS (
    SELECT
      run_id, rank, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
      arg_max(struct_pack(pid, tid), (slices, pid, tid)) AS lane
    FROM host
    GROUP BY run_id, rank
  ),
  device AS (
    SELECT run_id, rank, min(ts_ns) AS start_ns
    FROM kernels
    GROUP BY run_id, rank
  ),
  trace AS (
    SELECT
      run_id, rank, 'trace' AS scope, least(thread.start_ns, device.start_ns) AS start_ns,
      coalesce(thread.end_ns, device.start_ns) AS end_ns, thread.lane.pid, thread.lane.tid,
      TRUE AS entire_trace, FALSE AS complete
    FROM thread
    FULL JOIN device USING (run_id, rank)
  ),
  scope AS (
    SELECT * FROM step UNION ALL SELECT * FROM note UNION ALL SELECT * FROM trace
  )
SELECT
  * EXCLUDE (complete),
  list_contains($wanted, scope) OR $default AND (
    complete OR entire_trace AND NOT EXISTS (
      SELECT 1 FROM step WHERE step.run_id = scope.run_id AND step.rank = scope.rank
    )
  ) AS wanted
FROM scope
WHERE wanted OR list_contains($known, scope)
ORDER BY rank, start_ns, scope
"""


@dataclass(frozen=True)
class Wanted:
    """The scopes asked for; with none of them each complete step, or the trace where it has no steps."""

    scopes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        steps: int | Iterable[int] = (),
        annotations: str | Iterable[str] = (),
        entire_trace: bool = False,
    ) -> Wanted:
        """Steps by number, annotations as `NAME#K` (their K-th of that name, from 0; `NAME` is the first)."""
        steps = [steps] if isinstance(steps, int) else steps
        annotations = [annotations] if isinstance(annotations, str) else annotations
        named = [f"annotation {_numbered(text)}" for text in annotations]
        scopes = [*(f"step {int(step)}" for step in steps), *named, *(["trace"] if entire_trace else [])]
        return cls(tuple(dict.fromkeys(scopes)))


def _numbered(text: str) -> str:
    """`NAME#K`, the first where no number is given. Raises ParamError for an empty name."""
    name, mark, number = text.rpartition("#")
    if not (text if not mark else name):
        raise ParamError("an annotation without a name", "write NAME, or NAME#K for its K-th, counted from 0")
    return text if mark and number.isdecimal() else f"{text}#0"


def find(con: Connection, wanted: Wanted, known: Iterable[str] = ()) -> list[Row]:
    """The scopes wanted and those `known` by name, as rows of `critical_scopes` by rank and time.

    The connection has what READS names. In each row `wanted` tells whether it was asked for.
    """
    listed = sorted(known)
    matches = [_NOTE.fullmatch(scope) for scope in (*wanted.scopes, *listed)]
    values = {
        "names": [match["name"] for match in matches if match],
        "wanted": list(wanted.scopes),
        "known": listed,
        "default": not wanted.scopes,
    }
    with con.cursor() as cursor:
        cursor.execute(_ALL, values)
        columns = [column[0] for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def names(rows: Iterable[Row]) -> tuple[str, ...]:
    """What scopes are called."""
    return tuple(row["scope"] for row in rows)
