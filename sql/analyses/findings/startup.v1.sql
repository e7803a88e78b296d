-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "startup"
-- version  = 1
-- summary  = "Detects recordings of which first calls and compilation at the start take much."
-- requires = ["host_stalls@1", "analyzed_intervals@1", "ranks@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.5 }
--
-- [columns]
-- subject   = { doc = "Always: start-up." }
-- share     = { doc = "Time of such slices (`host_stalls`) on any thread, as a share of the recording, from its first to its last event." }
-- count     = { doc = "Number of such slices." }
-- culprit   = { doc = "The slice with most of this time." }
-- event_id  = { doc = "That slice." }
-- confidence = { doc = "high; medium if the recording has no third step, which would show what is not repeated. One lower if a reason of `recording` limits it." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  slice AS (
    SELECT
      run_id,
      rank,
      event_id,
      name,
      start_ns,
      end_ns,
      -- Latest end of earlier slices: time up to here is already counted.
      greatest(end_ns - greatest(start_ns, coalesce(max(end_ns) OVER earlier, start_ns)), 0) AS uncounted_ns
    FROM host_stalls
    WHERE kind = 'startup'
    WINDOW earlier AS (PARTITION BY run_id, rank ORDER BY start_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  ),
  analyzed AS (
    SELECT DISTINCT run_id, rank, steps, analyzed_ns
    FROM analyzed_intervals
  )
SELECT
  analyzed.run_id,
  analyzed.rank,
  'start-up' AS subject,
  least(coalesce(sum(slice.uncounted_ns), 0) / any_value(ranks.end_ns - ranks.start_ns), 1) AS share,
  TRUE AS is_representative,
  count(slice.event_id) AS count,
  any_value(analyzed.steps) AS steps,
  any_value(analyzed.analyzed_ns) AS analyzed_ns,
  NULL::BIGINT AS saving_ns,
  'this is once in the recording, not in each step' AS saving_limit,
  'First calls and compilation at the start take ' || format('{:.1f}', share * 100) || ' % of the recording. The largest part is '
  || coalesce(arg_max(slice.name, (slice.uncounted_ns, -slice.start_ns)), 'unknown') || ' ({detail}).' AS observation,
  'Leave these steps out: run warm-up iterations before recording (schedule with wait and warmup), and before serving. To start faster, load modules early (CUDA_MODULE_LOADING=EAGER) and keep compilation caches.' AS advice,
  'name_summary' AS evidence,
  'NOT on_gpu' AS evidence_filter,
  arg_max(slice.event_id, (slice.uncounted_ns, -slice.start_ns)) AS event_id,
  arg_max(slice.start_ns, (slice.uncounted_ns, -slice.start_ns)) AS from_ns,
  arg_max(slice.end_ns, (slice.uncounted_ns, -slice.start_ns)) AS to_ns,
  arg_max(slice.name, (slice.uncounted_ns, -slice.start_ns)) AS culprit,
  max(slice.uncounted_ns) AS detail_ns,
  CASE WHEN any_value(ranks.steps) > 2 THEN 0 ELSE 1 END AS doubt
FROM analyzed
JOIN ranks ON ranks.run_id = analyzed.run_id AND ranks.rank = analyzed.rank AND ranks.end_ns > ranks.start_ns
LEFT JOIN slice ON slice.run_id = analyzed.run_id AND slice.rank = analyzed.rank
GROUP BY analyzed.run_id, analyzed.rank
