-- /// tw
-- kind     = "view"
-- name     = "captured_launches"
-- version  = 1
-- summary  = "Launches that were captured into a CUDA or HIP graph instead of being run."
-- requires = ["runtime@1", "kernels@1", "events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "capture", "position"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The launch: a launch, copy or memset call between the begin and end of a capture on its thread that has no GPU activity." }
-- capture  = { type = "BIGINT", unit = "count", doc = "Number of the capture within the rank, in order of time, starting at 1." }
-- begin_id = { type = "BIGINT", unit = "id", doc = "The call that began the capture." }
-- end_id   = { type = "BIGINT", unit = "id", doc = "The call that ended it." }
-- position = { type = "BIGINT", unit = "count", doc = "Position of the launch within the capture, starting at 1." }
-- activity = { type = "VARCHAR", doc = "GPU activity that the call launches: kernel, memcpy or memset." }
-- kernel   = { type = "VARCHAR", null = true, doc = "Kernel name without suffixes such as ` [clone .kd]`; for a copy or memset, its activity. Null if the trace does not name the kernel of a launch, as on CUDA." }
-- pre      = { type = "BIGINT", null = true, unit = "id", doc = "Position of the launch in nesting order (preorder) over the rank." }
-- op_id    = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator enclosing the launch." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  call AS (
    SELECT run_id, rank, event_id, name, pid, tid, ts_ns, is_launch, op_id
    FROM runtime
    WHERE is_launch OR name LIKE '%StreamBeginCapture%' OR name LIKE '%StreamEndCapture%'
  ),
  edge AS (
    SELECT
      run_id,
      rank,
      event_id AS begin_id,
      pid,
      tid,
      ts_ns AS begin_ns,
      name LIKE '%StreamBeginCapture%' AS begins,
      lead(event_id) OVER thread AS end_id,
      lead(ts_ns) OVER thread AS end_ns,
      lead(name LIKE '%StreamEndCapture%') OVER thread AS ends
    FROM call
    WHERE name LIKE '%StreamBeginCapture%' OR name LIKE '%StreamEndCapture%'
    WINDOW thread AS (
      PARTITION BY run_id, rank, pid, tid
      ORDER BY ts_ns, event_id
    )
  ),
  capture AS (
    SELECT
      run_id,
      rank,
      row_number() OVER (
        PARTITION BY run_id, rank
        ORDER BY begin_ns, begin_id
      ) AS capture,
      begin_id,
      end_id,
      pid,
      tid,
      begin_ns,
      end_ns
    FROM edge
    WHERE begins AND ends
  ),
  launch AS (
    SELECT
      capture.run_id,
      capture.rank,
      call.event_id,
      capture.capture,
      capture.begin_id,
      capture.end_id,
      call.ts_ns,
      CASE
        WHEN call.name ILIKE '%memcpy%' THEN 'memcpy'
        WHEN call.name ILIKE '%memset%' THEN 'memset'
        ELSE 'kernel'
      END AS activity,
      call.op_id
    FROM capture
    JOIN call
      ON call.run_id = capture.run_id
      AND call.rank = capture.rank
      AND call.pid IS NOT DISTINCT FROM capture.pid
      AND call.tid IS NOT DISTINCT FROM capture.tid
      AND call.ts_ns BETWEEN capture.begin_ns AND capture.end_ns
      AND call.is_launch
      AND NOT contains(call.name, 'GraphLaunch')
    ANTI JOIN kernels
      ON kernels.run_id = capture.run_id AND kernels.rank = capture.rank AND kernels.runtime_id = call.event_id
  )
SELECT
  launch.run_id,
  launch.rank,
  launch.event_id,
  launch.capture,
  launch.begin_id,
  launch.end_id,
  row_number() OVER (
    PARTITION BY launch.run_id, launch.rank, launch.capture
    ORDER BY launch.ts_ns, launch.event_id
  ) AS position,
  launch.activity,
  CASE
    WHEN launch.activity = 'kernel'
    THEN regexp_replace(events.args ->> '$.kernel', '( \[clone [^\]]*\]|\.kd)+$', '')
    ELSE launch.activity
  END AS kernel,
  events.pre,
  launch.op_id
FROM launch
JOIN events USING (run_id, rank, event_id)
