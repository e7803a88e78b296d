"""What can be drawn over a trace on tracks of its own."""

from __future__ import annotations

from tracewarehouse.export.added import Added
from tracewarehouse.export.critical import CRITICAL_PATH
from tracewarehouse.export.found import FINDINGS
from tracewarehouse.export.states import IDLE, STEPS

# Each stream's rows one after the other, cut where the next begins; neighbours with the same annotations are
# one slice, at each depth: so the slices nest, whichever threads launched the rows. They are those of
# kernels_by_annotation.
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
      ) AS stretch
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
      count(*) AS gpu_rows
    FROM level
    GROUP BY device, stream, depth, ids, stretch
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
  json_object('annotation', slice.annotation_id, 'depth', slice.depth, 'GPU rows', slice.gpu_rows) AS args
FROM slice
JOIN gpu_tracks USING (device, stream)
"""

# The outermost operators with their sequences, as kernel_sequences counts them; a sequence's number is its
# place in the order of that analysis. On a stream each stretch of rows of one operator is a slice.
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
  holder AS (
    SELECT kernel_id, arg_min(op_id, level) AS op_id
    FROM kernel_operators
    GROUP BY kernel_id
  ),
  occurrence AS (
    SELECT
      holder.op_id,
      string_agg(
        coalesce(kernels.name, ''), ' | ' ORDER BY runtime.ts_ns, kernels.ts_ns, kernels.event_id
      ) AS kernels,
      count(*) AS gpu_rows
    FROM kernels
    JOIN holder ON holder.kernel_id = kernels.event_id
    JOIN runtime ON runtime.event_id = kernels.runtime_id
    GROUP BY holder.op_id
  ),
  turn AS (
    SELECT
      kernels.device,
      kernels.stream,
      holder.op_id,
      kernels.ts_ns,
      least(ts_ns + dur_ns, coalesce(lead(ts_ns) OVER onwards, ts_ns + dur_ns)) AS end_ns,
      row_number() OVER onwards AS turn
    FROM kernels
    LEFT JOIN holder ON holder.kernel_id = kernels.event_id
    WINDOW onwards AS (PARTITION BY kernels.device, kernels.stream ORDER BY ts_ns, dur_ns, event_id)
  ),
  stretch AS (
    SELECT
      device,
      stream,
      op_id,
      ts_ns,
      end_ns,
      turn - row_number() OVER (PARTITION BY device, stream, op_id ORDER BY turn) AS stretch
    FROM turn
  ),
  slice AS (
    SELECT device, stream, op_id, min(ts_ns) AS ts_ns, max(end_ns) AS end_ns, count(*) AS gpu_rows
    FROM stretch
    WHERE op_id IS NOT NULL
    GROUP BY device, stream, op_id, stretch
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
    'times in the trace', sequence.count,
    'GPU rows here', slice.gpu_rows,
    'GPU rows of the sequence', occurrence.gpu_rows
  ) AS args
FROM slice
JOIN gpu_tracks USING (device, stream)
JOIN occurrence USING (op_id)
JOIN events AS op ON op.event_id = slice.op_id
JOIN sequence ON sequence.name = coalesce(op.name, '') AND sequence.kernels = occurrence.kernels
"""

OVERLAYS = {
    each.name: each
    for each in (
        Added(
            "annotations",
            "the annotations around each GPU row's launch, above the rows of its stream",
            ("kernels_by_annotation", "annotations", "kernels", "runtime"),
            _ANNOTATIONS,
        ),
        Added(
            "kernel_sequences",
            "which operator's sequence each GPU row is part of, numbered by how often it comes",
            ("kernel_sequences", "kernel_operators", "kernels", "runtime", "events"),
            _KERNEL_SEQUENCES,
        ),
        CRITICAL_PATH,
        FINDINGS,
        IDLE,
        STEPS,
    )
}
