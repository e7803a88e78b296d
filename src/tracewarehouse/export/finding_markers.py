"""Overlay with a slice for the worst occurrence of each finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracewarehouse import hints
from tracewarehouse.duck import engine
from tracewarehouse.errors import ParamError
from tracewarehouse.export.overlay_events import Addition, TimeRange

FindingRows = Sequence[Mapping[str, Any]]

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
  finding.rule || ': ' || finding.subject AS name,
  coalesce(
    (SELECT any_value(pid) FROM ranks),
    (SELECT min(pid) FROM events WHERE ph <> 'M')
  ) AS pid,
  NULL AS tid,
  'finding ' || finding.rule || ' ' || finding.subject AS track,
  finding.from_ns AS ts_ns,
  finding.to_ns - finding.from_ns AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object(
    'severity', finding.severity, 'observation', finding.observation, 'advice', finding.advice,
    'shown', 'worst occurrence'
  ) AS args
FROM finding
WHERE finding.rank = (SELECT any_value(rank) FROM ranks) AND finding.to_ns >= finding.from_ns
"""

FINDINGS = Addition("findings", "the worst occurrence of each finding", ("ranks", "events"), _FINDINGS)


def create_findings_table(con: engine.Connection, rows: FindingRows) -> None:
    """Creates the table `finding` that `FINDINGS` reads, from rows of `Warehouse.check`."""
    engine.create_from_rows(con, "finding", _COLUMNS, [{key: row[key] for key in _COLUMNS} for row in rows])


def worst_occurrence(rule: str, findings: FindingRows, run: str) -> tuple[int, TimeRange]:
    """Rank and time range of the worst occurrence of a rule's most severe finding; raises ParamError."""
    rows = [row for row in findings if row["rule"] == rule]
    if not rows:
        raise ParamError(
            f"{run} has no finding {rule}", hints.fill("{} lists the findings", hints.call("check"))
        )
    timed = [row for row in rows if row["from_ns"] is not None and row["to_ns"] is not None]
    if not timed:
        raise ParamError(
            f"the finding {rule} has no time range",
            hints.Hint("use start and end, or step", "use --from and --to, or --step"),
        )
    return timed[0]["rank"], (timed[0]["from_ns"], max(timed[0]["to_ns"], timed[0]["from_ns"] + 1))
