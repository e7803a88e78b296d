"""The critical path drawn over a trace: a track for each scope, and arrows where it changes place."""

from __future__ import annotations

from tracewarehouse.export.added import Added

# A slice ends before its end: there an arrow would meet the next one.
_SQL = """
WITH
  scope AS (
    SELECT scope, coalesce(any_value(pid), (SELECT min(pid) FROM gpu_tracks)) AS pid
    FROM critical_nodes
    WHERE place = 'scope' AND side = 'start'
    GROUP BY scope
  ),
  instant AS (
    SELECT
      node.scope,
      node.node,
      node.event_id,
      events.pid,
      events.tid,
      node.ts_ns - CASE WHEN node.side = 'end' AND events.dur_ns > 0 THEN 1 ELSE 0 END AS ts_ns
    FROM critical_nodes AS node
    JOIN events ON events.event_id = node.event_id
  ),
  arrow AS (
    SELECT
      row_number() OVER (ORDER BY part.scope, part.position) AS id,
      part.type,
      source.pid AS from_pid,
      source.tid AS from_tid,
      source.ts_ns AS from_ns,
      target.pid AS to_pid,
      target.tid AS to_tid,
      target.ts_ns AS to_ns
    FROM critical_path AS part
    JOIN instant AS source ON source.scope = part.scope AND source.node = part.from_node
    JOIN instant AS target ON target.scope = part.scope AND target.node = part.to_node
    WHERE source.event_id <> target.event_id AND part.type NOT IN ('host', 'host_gap')
  )
SELECT
  'X' AS ph,
  'overlay' AS category,
  part.category || coalesce(': ' || events.name, '') AS name,
  scope.pid,
  NULL AS tid,
  'critical path of ' || part.scope AS track,
  part.start_ns AS ts_ns,
  part.part_ns AS dur_ns,
  1 AS depth,
  NULL AS id,
  NULL AS bp,
  json_object(
    'scope', part.scope,
    'category', part.category,
    'evidence', part.evidence,
    'event', part.event_id
  ) AS args
FROM critical_path AS part
JOIN scope ON scope.scope = part.scope
LEFT JOIN events ON events.event_id = part.event_id
WHERE part.part_ns > 0
UNION ALL BY NAME
SELECT
  's' AS ph, 'overlay' AS category, 'critical path' AS name, from_pid AS pid, from_tid AS tid, NULL AS track,
  from_ns AS ts_ns, NULL AS dur_ns, NULL AS depth, id, NULL AS bp, json_object('type', type) AS args
FROM arrow
UNION ALL BY NAME
SELECT
  'f' AS ph, 'overlay' AS category, 'critical path' AS name, to_pid AS pid, to_tid AS tid, NULL AS track,
  to_ns AS ts_ns, NULL AS dur_ns, NULL AS depth, id, 'e' AS bp, json_object('type', type) AS args
FROM arrow
"""

CRITICAL_PATH = Added(
    "critical_path",
    "what each derived step had to wait for, with arrows from thread to stream and back",
    ("critical_path_breakdown", "critical_path", "critical_nodes", "events"),
    _SQL,
)
