"""Findings over a trace: the place of each worst instance, on a track of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracewarehouse import hints
from tracewarehouse.duck import engine
from tracewarehouse.errors import ParamError
from tracewarehouse.export.overlay_events import Added, Window

Rows = Sequence[Mapping[str, Any]]

_COLUMNS = {
    "rank": "INTEGER",
    "rule": "VARCHAR",
    "subject": "VARCHAR",
    "severity": "VARCHAR",
    "observation": "VARCHAR",
    "advice": "VARCHAR",
    "from_ns": "BIGINT",
    "to_ns": "BIGINT",
}
_FINDINGS = """
SELECT
  'X' AS ph,
  'overlay' AS category,
  found.rule || ': ' || found.subject AS name,
  coalesce(
    (SELECT any_value(pid) FROM ranks),
    (SELECT min(pid) FROM events WHERE ph <> 'M')
  ) AS pid,
  NULL AS tid,
  'finding ' || found.rule || ' ' || found.subject AS track,
  found.from_ns AS ts_ns,
  found.to_ns - found.from_ns AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object(
    'severity', found.severity, 'observation', found.observation, 'advice', found.advice,
    'shown', 'the worst occurrence'
  ) AS args
FROM found
WHERE found.rank = (SELECT any_value(rank) FROM ranks) AND found.to_ns >= found.from_ns
"""

FINDINGS = Added("findings", "where each finding is at its worst", ("ranks", "events"), _FINDINGS)


def create_found(con: engine.Connection, rows: Rows) -> None:
    """Makes the table `found` that `FINDINGS` reads, of rows as `tw check` tells them."""
    engine.create_from_rows(con, "found", _COLUMNS, [{key: row[key] for key in _COLUMNS} for row in rows])


def place_of(rule: str, found: Rows, run: str) -> tuple[int, Window]:
    """Rank and place of a rule's gravest finding at its worst; raises ParamError where there is none."""
    rows = [row for row in found if row["rule"] == rule]
    if not rows:
        raise ParamError(
            f"{run} has no finding {rule}", hints.fill("{} lists the findings", hints.call("check"))
        )
    placed = [row for row in rows if row["from_ns"] is not None and row["to_ns"] is not None]
    if not placed:
        raise ParamError(
            f"the finding {rule} has no time range",
            hints.Hint("use start and end, or step", "use --from and --to, or --step"),
        )
    return placed[0]["rank"], (placed[0]["from_ns"], max(placed[0]["to_ns"], placed[0]["from_ns"] + 1))
