-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "host_blocked"
-- version  = 1
-- summary  = "Detects operators that block the launching thread until the GPU is done, even while the GPU is busy."
-- requires = ["analyzed_segments@1", "analyzed_intervals@1", "runtime@1", "events@1", "kernels@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.15 }
-- critical_share = { default = 1 }
--
-- [columns]
-- subject   = { doc = "Always: host." }
-- share     = { doc = "Time in synchronizing calls and synchronous copies inside operators on the thread that is blocked longest, as a share of analyzed_ns." }
-- count     = { doc = "Number of such calls." }
-- culprit   = { doc = "The call, and the outermost operator enclosing it, with most of this time." }
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
      runtime.step,
      runtime.pid,
      runtime.tid,
      runtime.name || ' under ' || op.name AS label
    FROM runtime
    JOIN events AS op
      ON op.run_id = runtime.run_id
      AND op.rank = runtime.rank
      AND op.event_id = runtime.op_id
      -- Of old versions of PyTorch, steps are operators.
      AND NOT starts_with(op.name, 'ProfilerStep')
    JOIN analyzed_intervals AS analyzed
      ON analyzed.run_id = runtime.run_id
      AND analyzed.rank = runtime.rank
      AND runtime.ts_ns >= analyzed.start_ns
      AND runtime.ts_ns < analyzed.end_ns
    LEFT JOIN synchronous
      ON synchronous.run_id = runtime.run_id AND synchronous.rank = runtime.rank AND synchronous.event_id = runtime.event_id
    WHERE runtime.is_sync OR synchronous.event_id IS NOT NULL
  ),
  blocked AS (
    SELECT
      run_id,
      rank,
      tid,
      count(*) AS count,
      sum(dur_ns)::BIGINT AS blocked_ns,
      arg_max(event_id, (dur_ns, -ts_ns)) AS event_id,
      arg_max(ts_ns, (dur_ns, -ts_ns)) AS from_ns,
      arg_max(step, (dur_ns, -ts_ns)) AS step,
      from_ns + max(dur_ns) AS to_ns
    FROM call
    GROUP BY run_id, rank, pid, tid
    -- The thread that is blocked longest.
    QUALIFY row_number() OVER (PARTITION BY run_id, rank ORDER BY blocked_ns DESC, pid, tid) = 1
  ),
  part AS (
    SELECT run_id, rank, label, sum(dur_ns)::BIGINT AS part_ns
    FROM call
    SEMI JOIN blocked ON blocked.run_id = call.run_id AND blocked.rank = call.rank AND blocked.tid IS NOT DISTINCT FROM call.tid
    GROUP BY run_id, rank, label
  ),
  largest AS (
    SELECT run_id, rank, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
    FROM part
    GROUP BY run_id, rank
  ),
  analyzed AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      coalesce(sum(segment_ns) FILTER (cause = 'sync'), 0)::BIGINT AS after_ns,
      coalesce(sum(segment_ns) FILTER (cause IN ('sync', 'host', 'queued')), 0)::BIGINT AS idle_ns
    FROM analyzed_segments
    GROUP BY run_id, rank
  )
SELECT
  analyzed.run_id,
  analyzed.rank,
  'host' AS subject,
  least(coalesce(blocked.blocked_ns, 0) / analyzed.analyzed_ns, 1) AS share,
  -- Where the GPU idles for most of this time, `blocking_syncs` says so.
  share >= $warning_share AND 2 * analyzed.after_ns < blocked.blocked_ns AS is_finding,
  analyzed.steps > 0 AS is_representative,
  coalesce(blocked.count, 0) AS count,
  analyzed.steps,
  analyzed.analyzed_ns,
  least(analyzed.idle_ns, coalesce(blocked.blocked_ns, 0)) AS saving_ns,
  'the idle time that the host could have prepared for, or that such a call waited for: at most the time in the calls. The rest is hidden, as long as the GPU has work' AS saving_limit,
  'A thread of the host is blocked for ' || format('{:.1f}', share * 100) || ' % of the time in calls that wait for the GPU. Meanwhile it cannot prepare work, so that every delay of the host becomes idle time. The largest part is '
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
LEFT JOIN blocked ON blocked.run_id = analyzed.run_id AND blocked.rank = analyzed.rank
LEFT JOIN largest ON largest.run_id = analyzed.run_id AND largest.rank = analyzed.rank
