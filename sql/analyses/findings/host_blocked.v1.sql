-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "host_blocked"
-- version  = 1
-- summary  = "Detects operators that block the host until the GPU is done, while the GPU is busy."
-- requires = ["analyzed_segments@1", "analyzed_intervals@1", "runtime@1", "events@1", "kernels@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.15 }
-- critical_share = { default = 1 }
-- max_idle       = { type = "DOUBLE", unit = "ratio", default = 0.05, min = 0, doc = "From this share of idle time after synchronizing calls, or after copies, `blocking_syncs` or `blocking_copies` has the finding." }
--
-- [columns]
-- subject   = { doc = "Always: host." }
-- share     = { doc = "Time in synchronizing calls and synchronous copies inside operators on the thread that is blocked longest, as a share of analyzed_ns." }
-- count     = { doc = "Number of such calls of that thread." }
-- culprit   = { doc = "The call, and the innermost operator enclosing it, with most of this time." }
-- saving_ns = { doc = "Idle time that the host could have prepared for, or that such a call waited for, at most the time in the calls; null below minor_share." }
-- event_id  = { doc = "The longest such call." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  synchronous AS (
    -- Calls that return after the copy that they launched.
    SELECT DISTINCT kernels.run_id, kernels.rank, kernels.runtime_id AS event_id
    FROM kernels
    WHERE kernels.activity = 'memcpy' AND kernels.launch_to_start_ns + kernels.dur_ns <= kernels.launch_dur_ns
  ),
  call AS (
    SELECT
      runtime.run_id,
      runtime.rank,
      runtime.event_id,
      runtime.ts_ns,
      runtime.dur_ns,
      runtime.is_sync,
      runtime.step,
      runtime.pid,
      runtime.tid,
      runtime.name || ' under ' || op.name AS label,
      -- Without what is after the interval, or in an earlier call (of the runtime, around one of the driver).
      greatest(
        least(runtime.ts_ns + runtime.dur_ns, analyzed.end_ns)
        - greatest(runtime.ts_ns, coalesce(max(runtime.ts_ns + runtime.dur_ns) OVER earlier, runtime.ts_ns)),
        0
      ) AS blocked_ns
    FROM runtime
    JOIN events AS op
      ON op.run_id = runtime.run_id AND op.rank = runtime.rank AND op.event_id = runtime.op_id
      -- In traces of earlier versions of PyTorch, steps are operators.
      AND NOT starts_with(op.name, 'ProfilerStep')
    JOIN analyzed_intervals AS analyzed
      ON analyzed.run_id = runtime.run_id
      AND analyzed.rank = runtime.rank
      AND runtime.ts_ns >= analyzed.start_ns
      AND runtime.ts_ns < analyzed.end_ns
    LEFT JOIN synchronous
      ON synchronous.run_id = runtime.run_id AND synchronous.rank = runtime.rank AND synchronous.event_id = runtime.event_id
    WHERE runtime.is_sync OR synchronous.event_id IS NOT NULL
    WINDOW earlier AS (
      PARTITION BY runtime.run_id, runtime.rank, runtime.pid, runtime.tid
      ORDER BY runtime.ts_ns, runtime.dur_ns DESC, runtime.event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  part AS (
    SELECT run_id, rank, pid, tid, label, sum(blocked_ns)::BIGINT AS part_ns
    FROM call
    GROUP BY run_id, rank, pid, tid, label
  ),
  largest AS (
    -- The thread that is blocked longest.
    SELECT run_id, rank, pid, tid, sum(part_ns)::BIGINT AS blocked_ns, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
    FROM part
    GROUP BY run_id, rank, pid, tid
    QUALIFY row_number() OVER (PARTITION BY run_id, rank ORDER BY sum(part_ns) DESC, pid, tid) = 1
  ),
  blocked AS (
    SELECT
      call.run_id,
      call.rank,
      count(*) AS count,
      arg_max(call.event_id, (call.dur_ns, -call.ts_ns)) AS event_id,
      arg_max(call.ts_ns, (call.dur_ns, -call.ts_ns)) AS from_ns,
      arg_max(call.step, (call.dur_ns, -call.ts_ns)) AS step,
      from_ns + max(call.dur_ns) AS to_ns
    FROM call
    JOIN largest
      ON largest.run_id = call.run_id
      AND largest.rank = call.rank
      AND largest.pid IS NOT DISTINCT FROM call.pid
      AND largest.tid IS NOT DISTINCT FROM call.tid
    GROUP BY call.run_id, call.rank
  ),
  analyzed AS (
    SELECT
      segment.run_id,
      segment.rank,
      any_value(segment.steps) AS steps,
      any_value(segment.analyzed_ns) AS analyzed_ns,
      coalesce(sum(segment.segment_ns) FILTER (segment.cause = 'sync' AND call.is_sync), 0)::BIGINT AS after_sync_ns,
      coalesce(sum(segment.segment_ns) FILTER (segment.cause = 'sync' AND NOT call.is_sync), 0)::BIGINT AS after_copy_ns,
      coalesce(sum(segment.segment_ns) FILTER (segment.cause IN ('sync', 'host', 'queued')), 0)::BIGINT AS idle_ns
    FROM analyzed_segments AS segment
    LEFT JOIN runtime AS call
      ON call.run_id = segment.run_id AND call.rank = segment.rank AND call.event_id = segment.wait_id
    GROUP BY segment.run_id, segment.rank
  )
SELECT
  analyzed.run_id,
  analyzed.rank,
  'host' AS subject,
  coalesce(largest.blocked_ns, 0) / analyzed.analyzed_ns AS share,
  share >= $warning_share AND greatest(after_sync_ns, after_copy_ns) < $max_idle * analyzed.analyzed_ns AS is_finding,
  coalesce(blocked.count, 0) AS count,
  analyzed.steps,
  analyzed.analyzed_ns,
  CASE
    WHEN least(analyzed.idle_ns, largest.blocked_ns) >= $minor_share * analyzed.analyzed_ns THEN least(analyzed.idle_ns, largest.blocked_ns)::BIGINT
  END AS saving_ns,
  'the idle time that the host could have prepared for, or that such a call waited for: at most the time in the calls. The rest is hidden, as long as the GPU has work' AS saving_limit,
  'Operators block a thread of the host for ' || format('{:.1f}', share * 100) || ' % of the time, in calls that wait for the GPU. Meanwhile it cannot prepare work, so that every delay of the host becomes idle time. The largest part is '
  || coalesce(largest.culprit, 'unknown') || ' ({detail}).' AS observation,
  'Keep decisions on the device: replace .item(), .cpu(), is_nonzero and shapes that depend on data in the step, or read such values one step later from a copy with non_blocking=True.' AS advice,
  'host_account' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  blocked.event_id,
  blocked.from_ns,
  blocked.to_ns,
  blocked.step,
  largest.culprit,
  largest.part_ns // greatest(analyzed.steps, 1) AS detail_ns
FROM analyzed
LEFT JOIN blocked USING (run_id, rank)
LEFT JOIN largest USING (run_id, rank)
