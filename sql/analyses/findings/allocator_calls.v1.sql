-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "allocator_calls"
-- version  = 1
-- summary  = "Detects driver calls that allocate or free memory after the first complete step."
-- requires = ["runtime@1", "steps@1", "analyzed_intervals@1", "host_stalls@1", "stall_rules@1"]
-- needs    = ["gpu", "launches"]
-- excluded_by = []
-- limited_by = ["lost_events", "several_processes"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
-- min_calls      = { type = "BIGINT", unit = "count", default = 20, min = 1, doc = "Without two complete steps, fewer calls are not a finding." }
--
-- [columns]
-- subject   = { doc = "Always: allocations." }
-- share     = { doc = "Time in calls that allocate or free memory, as a share of analyzed_ns." }
-- count     = { doc = "Number of such calls, without those of start-up (`host_stalls`)." }
-- analyzed_ns = { doc = "Analyzed time: the total period of all complete steps but the first, in which allocations may be necessary. With fewer than two complete steps, that one, or else the profiling window; then only many calls (min_calls) are a finding." }
-- saving_ns = { doc = "Upper bound on the time saved in the analyzed interval: the time in these calls." }
-- culprit   = { doc = "The function with most of this time." }
-- event_id  = { doc = "The longest such call." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  later_step AS (
    SELECT run_id, rank, step, period_ns
    FROM steps
    WHERE NOT partial AND period_ns > 0
    QUALIFY row_number() OVER (PARTITION BY run_id, rank ORDER BY host_start_ns, step) > 1
  ),
  analyzed AS (
    SELECT run_id, rank, TRUE AS is_later, count(*) AS steps, sum(period_ns)::BIGINT AS analyzed_ns
    FROM later_step
    GROUP BY run_id, rank
    UNION ALL
    SELECT DISTINCT run_id, rank, FALSE, steps, analyzed_ns
    FROM analyzed_intervals AS recorded
    ANTI JOIN later_step USING (run_id, rank)
  ),
  allocator AS (
    SELECT named.name
    FROM (SELECT DISTINCT name FROM runtime) AS named
    JOIN stall_rules AS rule ON rule.what = 'allocation' AND regexp_matches(named.name, rule.pattern)
  ),
  call AS (
    SELECT
      runtime.run_id,
      runtime.rank,
      runtime.event_id,
      runtime.name,
      runtime.step,
      runtime.ts_ns,
      runtime.dur_ns,
      greatest(runtime.ts_ns, recorded.start_ns) AS counted_from_ns,
      least(runtime.ts_ns + runtime.dur_ns, recorded.end_ns) AS counted_to_ns,
      -- Latest end of earlier calls: time up to here is already counted.
      greatest(counted_to_ns - greatest(counted_from_ns, coalesce(max(counted_to_ns) OVER earlier, counted_from_ns)), 0) AS uncounted_ns
    FROM runtime
    JOIN allocator USING (name)
    JOIN analyzed USING (run_id, rank)
    LEFT JOIN later_step USING (run_id, rank, step)
    LEFT JOIN analyzed_intervals AS recorded
      ON recorded.run_id = runtime.run_id
      AND recorded.rank = runtime.rank
      AND NOT analyzed.is_later
      AND runtime.ts_ns < recorded.end_ns
      AND runtime.ts_ns + runtime.dur_ns > recorded.start_ns
    LEFT JOIN host_stalls AS stall USING (run_id, rank, event_id)
    WHERE
      (later_step.step IS NOT NULL OR recorded.start_ns IS NOT NULL)
      AND stall.kind IS DISTINCT FROM 'startup'
    WINDOW earlier AS (
      PARTITION BY runtime.run_id, runtime.rank
      ORDER BY runtime.ts_ns, runtime.event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  per_rank AS (
    SELECT
      analyzed.run_id,
      analyzed.rank,
      analyzed.is_later,
      analyzed.steps,
      analyzed.analyzed_ns,
      count(call.event_id) AS count,
      coalesce(sum(call.uncounted_ns), 0)::BIGINT AS saving_ns,
      saving_ns / analyzed.analyzed_ns AS share,
      arg_max(call.event_id, (call.dur_ns, -call.ts_ns)) AS event_id,
      arg_max(call.ts_ns, (call.dur_ns, -call.ts_ns)) AS from_ns,
      from_ns + max(call.dur_ns) AS to_ns,
      arg_max(call.step, (call.dur_ns, -call.ts_ns)) AS step
    FROM analyzed
    LEFT JOIN call USING (run_id, rank)
    GROUP BY analyzed.run_id, analyzed.rank, analyzed.is_later, analyzed.steps, analyzed.analyzed_ns
  ),
  part AS (
    SELECT run_id, rank, name AS label, sum(uncounted_ns)::BIGINT AS part_ns
    FROM call
    GROUP BY run_id, rank, name
  ),
  largest AS (
    SELECT run_id, rank, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
    FROM part
    GROUP BY run_id, rank
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'allocations' AS subject,
  share >= $warning_share AND (is_later OR count >= $min_calls) AS is_finding,
  is_later AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the time in these calls; less where the GPU is busy meanwhile' AS saving_limit,
  CASE WHEN is_later THEN 'After the first complete step the host still' ELSE 'The host' END || ' allocates or frees memory in the driver, which can stall the device: {lost}. The largest part is ' || coalesce(largest.culprit, 'unknown') || ' ({detail}); the longest call takes {worst}{where}.' AS observation,
  'Let the caching allocator keep its memory: no torch.cuda.empty_cache() in the loop, sizes that do not change from step to step, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation.' AS advice,
  'name_summary' AS evidence,
  'category = ''cuda_runtime''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  largest.culprit,
  largest.part_ns // greatest(steps, 1) AS detail_ns
FROM per_rank
LEFT JOIN largest USING (run_id, rank)
