"""Scopes of a rank whose critical path is derived: steps, annotations, or the entire trace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tracewarehouse.duck.engine import Connection
from tracewarehouse.errors import ParamError

READS = ("steps", "events", "annotations", "kernels", "runtime")
_ANNOTATION = re.compile(r"annotation (?P<name>.+)#\d+", re.DOTALL)

ScopeRow = dict[str, Any]  # a row of `critical_scopes`, the step's period, and whether it was requested

# All scopes with their thread. If every step is partial, all of them count as complete.
_SCOPES = """
WITH
  step AS (
    SELECT
      steps.run_id, steps.rank, 'step ' || steps.step AS scope, steps.host_start_ns AS start_ns,
      steps.host_start_ns + steps.host_ns AS end_ns, annotation.pid, annotation.tid, FALSE AS entire_trace,
      steps.period_ns,
      NOT steps.partial OR bool_and(steps.partial) OVER (PARTITION BY steps.run_id, steps.rank) AS complete
    FROM steps
    JOIN events AS annotation
      ON annotation.run_id = steps.run_id
      AND annotation.rank = steps.rank
      AND annotation.event_id = steps.event_id
  ),
  named AS (
    SELECT
      run_id, rank,
      'annotation ' || name || '#' || row_number() OVER (
        PARTITION BY run_id, rank, name ORDER BY ts_ns, event_id
      ) - 1 AS scope,
      ts_ns AS start_ns, ts_ns + dur_ns AS end_ns, pid, tid, FALSE AS entire_trace, NULL AS period_ns,
      FALSE AS complete
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
      TRUE AS entire_trace, NULL AS period_ns, FALSE AS complete
    FROM thread
    FULL JOIN device USING (run_id, rank)
  ),
  scope AS (
    SELECT * FROM step UNION ALL SELECT * FROM named UNION ALL SELECT * FROM trace
  )
SELECT
  * EXCLUDE (complete),
  list_contains($requested, scope) OR $default AND (
    complete OR entire_trace AND NOT EXISTS (
      SELECT 1 FROM step WHERE step.run_id = scope.run_id AND step.rank = scope.rank
    )
  ) AS requested
FROM scope
WHERE requested OR list_contains($known, scope)
ORDER BY rank, start_ns, scope
"""


@dataclass(frozen=True)
class ScopeRequest:
    """The requested scopes; by default each complete step, or the entire trace if it has no steps."""

    scopes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        steps: int | Iterable[int] = (),
        annotations: str | Iterable[str] = (),
        entire_trace: bool = False,
    ) -> ScopeRequest:
        """Steps by number, annotations as `NAME#K` (the K-th of that name, from 0; `NAME` is the first)."""
        steps = [steps] if isinstance(steps, int) else steps
        annotations = [annotations] if isinstance(annotations, str) else annotations
        named = [f"annotation {_numbered(text)}" for text in annotations]
        scopes = [*(f"step {int(step)}" for step in steps), *named, *(["trace"] if entire_trace else [])]
        return cls(tuple(dict.fromkeys(scopes)))


def _numbered(text: str) -> str:
    """`NAME#K`, the first without a number. Raises ParamError for an empty name."""
    name, separator, number = text.rpartition("#")
    if not (name if separator else text):
        raise ParamError("annotation without a name", "write NAME, or NAME#K for the K-th, counted from 0")
    return text if separator and number.isdecimal() else f"{text}#0"


def find_scopes(con: Connection, request: ScopeRequest, known: Iterable[str] = ()) -> list[ScopeRow]:
    """The requested scopes and those `known` by name, by rank and time. It reads the tables READS."""
    listed = sorted(known)
    matches = [_ANNOTATION.fullmatch(scope) for scope in (*request.scopes, *listed)]
    values = {
        "names": [match["name"] for match in matches if match],
        "requested": list(request.scopes),
        "known": listed,
        "default": not request.scopes,
    }
    with con.cursor() as cursor:
        cursor.execute(_SCOPES, values)
        columns = [column[0] for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def scope_names(rows: Iterable[ScopeRow]) -> tuple[str, ...]:
    """The names of scopes."""
    return tuple(row["scope"] for row in rows)
