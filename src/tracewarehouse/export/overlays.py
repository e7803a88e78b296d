"""Overlays: tracks with annotations, kernel sequences, critical path, findings, idle intervals and steps.

Their SELECTs are not contracts: they read analyses, which a contract cannot, and relations of one export (the
tracks of its trace and the findings to mark), and their columns are trace events.
"""

from __future__ import annotations

from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.export.finding_markers import FINDINGS
from tracewarehouse.export.overlay_events import Addition, TimeRange

# The activities of each stream in order, each ending at the latest where the next begins; adjacent ones with
# the same annotations are one slice, at each depth. So the slices nest, whichever threads launched the
# activities. The annotations are those of kernels_by_annotation.
_ANNOTATIONS = """
WITH RECURSIVE
  above AS (
    SELECT DISTINCT kernels.runtime_id, kernels.annotation_id, runtime.ts_ns AS call_ns
    FROM kernels
    JOIN runtime
      ON runtime.run_id = kernels.run_id
      AND runtime.rank = kernels.rank
      AND runtime.event_id = kernels.runtime_id
    WHERE kernels.annotation_id IS NOT NULL
    UNION ALL
    SELECT above.runtime_id, annotations.parent_id AS annotation_id, above.call_ns
    FROM above
    JOIN annotations ON annotations.event_id = above.annotation_id
    WHERE annotations.parent_id IS NOT NULL
  ),
  stack AS (
    SELECT
      above.runtime_id,
      list(annotations.event_id ORDER BY annotations.pre) AS ids,
      list(coalesce(annotations.name, '') ORDER BY annotations.pre) AS names
    FROM above
    JOIN annotations ON annotations.event_id = above.annotation_id
    WHERE annotations.ts_ns + annotations.dur_ns > above.call_ns
    GROUP BY above.runtime_id
  ),
  turn AS (
    SELECT
      device,
      stream,
      runtime_id,
      ts_ns,
      least(ts_ns + dur_ns, coalesce(lead(ts_ns) OVER onwards, ts_ns + dur_ns)) AS end_ns,
      row_number() OVER onwards AS turn
    FROM kernels
    WINDOW onwards AS (PARTITION BY device, stream ORDER BY ts_ns, dur_ns, event_id)
  ),
  level AS (
    SELECT
      turn.device,
      turn.stream,
      turn.ts_ns,
      turn.end_ns,
      depth,
      stack.ids[:depth] AS ids,
      stack.names[depth] AS name,
      turn.turn - row_number() OVER (
        PARTITION BY turn.device, turn.stream, depth, stack.ids[:depth] ORDER BY turn.turn
      ) AS island
    FROM turn
    JOIN stack ON stack.runtime_id = turn.runtime_id
    CROSS JOIN LATERAL (SELECT unnest(generate_series(1, len(stack.ids))) AS depth) AS depths
  ),
  slice AS (
    SELECT
      device,
      stream,
      depth,
      ids[depth] AS annotation_id,
      any_value(name) AS name,
      min(ts_ns) AS ts_ns,
      max(end_ns) AS end_ns,
      count(*) AS gpu_activities
    FROM level
    GROUP BY device, stream, depth, ids, island
  )
SELECT
  'X' AS ph,
  'overlay' AS category,
  slice.name,
  gpu_tracks.pid,
  NULL AS tid,
  'stream ' || slice.stream || ' annotations' AS track,
  slice.ts_ns,
  slice.end_ns - slice.ts_ns AS dur_ns,
  slice.depth,
  NULL AS id,
  NULL AS bp,
  json_object(
    'annotation', slice.annotation_id, 'depth', slice.depth, 'GPU activities', slice.gpu_activities
  ) AS args
FROM slice
JOIN gpu_tracks USING (device, stream)
"""

# The outermost operators with their sequences, as counted by kernel_sequences; a sequence's number is its
# position in that analysis. On a stream, consecutive activities of one operator are a slice.
_KERNEL_SEQUENCES = """
WITH
  sequence AS (
    SELECT
      name,
      kernels,
      count,
      row_number() OVER (ORDER BY count DESC, kernel_sum_ns DESC, name, kernels) AS number
    FROM kernel_sequences
  ),
  outermost AS (
    SELECT kernel_id, arg_min(op_id, level) AS op_id
    FROM kernel_operators
    GROUP BY kernel_id
  ),
  occurrence AS (
    SELECT
      outermost.op_id,
      string_agg(
        coalesce(kernels.name, ''), ' | ' ORDER BY runtime.ts_ns, kernels.ts_ns, kernels.event_id
      ) AS kernels,
      count(*) AS gpu_activities
    FROM kernels
    JOIN outermost ON outermost.kernel_id = kernels.event_id
    JOIN runtime ON runtime.event_id = kernels.runtime_id
    GROUP BY outermost.op_id
  ),
  turn AS (
    SELECT
      kernels.device,
      kernels.stream,
      outermost.op_id,
      kernels.ts_ns,
      least(ts_ns + dur_ns, coalesce(lead(ts_ns) OVER onwards, ts_ns + dur_ns)) AS end_ns,
      row_number() OVER onwards AS turn
    FROM kernels
    LEFT JOIN outermost ON outermost.kernel_id = kernels.event_id
    WINDOW onwards AS (PARTITION BY kernels.device, kernels.stream ORDER BY ts_ns, dur_ns, event_id)
  ),
  turn_island AS (
    SELECT
      device,
      stream,
      op_id,
      ts_ns,
      end_ns,
      turn - row_number() OVER (PARTITION BY device, stream, op_id ORDER BY turn) AS island
    FROM turn
  ),
  slice AS (
    SELECT device, stream, op_id, min(ts_ns) AS ts_ns, max(end_ns) AS end_ns, count(*) AS gpu_activities
    FROM turn_island
    WHERE op_id IS NOT NULL
    GROUP BY device, stream, op_id, island
  )
SELECT
  'X' AS ph,
  'overlay' AS category,
  sequence.name || ' #' || sequence.number AS name,
  gpu_tracks.pid,
  NULL AS tid,
  'stream ' || slice.stream || ' kernel sequences' AS track,
  slice.ts_ns,
  slice.end_ns - slice.ts_ns AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object(
    'operator', slice.op_id,
    'sequence', sequence.number,
    'occurrences', sequence.count,
    'GPU activities here', slice.gpu_activities,
    'GPU activities of the sequence', occurrence.gpu_activities
  ) AS args
FROM slice
JOIN gpu_tracks USING (device, stream)
JOIN occurrence USING (op_id)
JOIN events AS op ON op.event_id = slice.op_id
JOIN sequence ON sequence.name = coalesce(op.name, '') AND sequence.kernels = occurrence.kernels
"""


# A flow leaves 1 ns before the end of a slice: at the end it would attach to the next one.
_CRITICAL_PATH = """
WITH
  scope AS (
    SELECT scope, coalesce(any_value(pid), (SELECT min(pid) FROM gpu_tracks)) AS pid
    FROM critical_nodes
    WHERE kind = 'scope' AND side = 'start'
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
  flow AS (
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
  part.segment_ns AS dur_ns,
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
WHERE part.segment_ns > 0
UNION ALL BY NAME
SELECT
  's' AS ph, 'overlay' AS category, 'critical path' AS name, from_pid AS pid, from_tid AS tid, NULL AS track,
  from_ns AS ts_ns, NULL AS dur_ns, NULL AS depth, id, NULL AS bp, json_object('type', type) AS args
FROM flow
UNION ALL BY NAME
SELECT
  'f' AS ph, 'overlay' AS category, 'critical path' AS name, to_pid AS pid, to_tid AS tid, NULL AS track,
  to_ns AS ts_ns, NULL AS dur_ns, NULL AS depth, id, 'e' AS bp, json_object('type', type) AS args
FROM flow
"""

CRITICAL_PATH = Addition(
    "critical_path",
    "the critical path of each derived scope, with flows between threads and streams",
    ("critical_path_breakdown", "critical_path", "critical_nodes", "events"),
    _CRITICAL_PATH,
)


_IDLE = """
SELECT
  'X' AS ph,
  'overlay' AS category,
  'idle: ' || idle_intervals.cause AS name,
  process.pid,
  NULL AS tid,
  'idle device ' || idle_intervals.device AS track,
  idle_intervals.start_ns AS ts_ns,
  idle_intervals.idle_ns AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object(
    'cause', idle_intervals.cause,
    'after', coalesce(idle_intervals.before_name, ''),
    'before', coalesce(idle_intervals.after_name, ''),
    'launched by', coalesce(idle_intervals.api, 'unknown'),
    'in operator', coalesce(idle_intervals.op_name, 'unknown')
  ) AS args
FROM idle_intervals
JOIN (SELECT device, min(pid) AS pid FROM gpu_tracks GROUP BY device) AS process USING (device)
"""

# Periods, since they tile the window: the annotation of a step is already in the trace.
_STEPS = """
SELECT
  'X' AS ph,
  'overlay' AS category,
  'step ' || steps.step || CASE WHEN steps.partial THEN ' (partial)' ELSE '' END AS name,
  events.pid,
  NULL AS tid,
  'steps' AS track,
  steps.period_start_ns AS ts_ns,
  steps.period_ns AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object('step', steps.step, 'host ns', steps.host_ns, 'device ns', coalesce(steps.device_ns, 0)) AS args
FROM steps
JOIN events ON events.event_id = steps.event_id
"""

IDLE = Addition(
    "idle",
    "idle intervals of each device with their cause and the launch that ended them",
    ("idle_intervals",),
    _IDLE,
)
STEPS = Addition(
    "steps", "each step, from the end of the previous one on the GPU", ("steps", "events"), _STEPS
)


OVERLAYS = {
    each.name: each
    for each in (
        Addition(
            "annotations",
            "the annotations enclosing the launch of each GPU activity, by stream",
            ("kernels_by_annotation", "annotations", "kernels", "runtime"),
            _ANNOTATIONS,
        ),
        Addition(
            "kernel_sequences",
            "the kernel sequence of each operator, numbered by frequency",
            ("kernel_sequences", "kernel_operators", "kernels", "runtime", "events"),
            _KERNEL_SEQUENCES,
        ),
        CRITICAL_PATH,
        FINDINGS,
        IDLE,
        STEPS,
    )
}


def range_marker(name: str, time_range: TimeRange) -> Addition:
    """A slice of the exported time range: complete slices may extend beyond it."""
    from_ns, to_ns = time_range
    sql = f"""
SELECT
  'X' AS ph,
  'overlay' AS category,
  {quote_text(name)} AS name,
  coalesce(
    (SELECT any_value(pid) FROM ranks),
    (SELECT min(pid) FROM events WHERE ph <> 'M')
  ) AS pid,
  NULL AS tid,
  'exported range' AS track,
  {from_ns}::BIGINT AS ts_ns,
  {to_ns - from_ns}::BIGINT AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object('overlapping slices', 'complete') AS args
"""
    return Addition("range", "the exported time range", ("ranks", "events"), sql)
