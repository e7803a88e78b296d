-- /// tw
-- kind     = "analysis"
-- name     = "allocator_calls"
-- version  = 1
-- summary  = "Detects driver calls that allocate or free memory after the first complete step."
-- requires = ["runtime@1", "steps@1"]
-- needs    = ["gpu", "launches", "steps>=2"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.01, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.05, unit = "ratio", min = 0, doc = "Critical threshold." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: allocations. Ranks with fewer than two complete steps have no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Time in calls that allocate or free memory, as a share of analyzed_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of such calls." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the total period of all complete steps but the first, in which allocations may be necessary." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: the time in these calls." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The longest such call." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
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
    SELECT run_id, rank, count(*) AS steps, sum(period_ns)::BIGINT AS analyzed_ns
    FROM later_step
    GROUP BY run_id, rank
  ),
  call AS (
    SELECT
      runtime.run_id,
      runtime.rank,
      runtime.event_id,
      runtime.ts_ns,
      runtime.dur_ns,
      -- Latest end of earlier calls: time up to here is already counted.
      greatest(runtime.ts_ns, coalesce(max(runtime.ts_ns + runtime.dur_ns) OVER earlier, runtime.ts_ns)) AS fresh_ns
    FROM runtime
    SEMI JOIN later_step
      ON later_step.run_id = runtime.run_id AND later_step.rank = runtime.rank AND later_step.step = runtime.step
    WHERE regexp_matches(runtime.name, '^(cuda|hip)(Malloc|Free)(Host|Managed|Pitch|Array|3D)?$|^(cuda|hip)Host(Alloc|Malloc|Free)$')
    WINDOW earlier AS (
      PARTITION BY runtime.run_id, runtime.rank
      ORDER BY runtime.ts_ns, runtime.event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  total AS (
    SELECT
      analyzed.run_id,
      analyzed.rank,
      any_value(analyzed.steps) AS steps,
      any_value(analyzed.analyzed_ns) AS analyzed_ns,
      count(call.event_id) AS count,
      coalesce(sum(greatest(call.ts_ns + call.dur_ns - call.fresh_ns, 0)), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(analyzed.analyzed_ns) AS share,
      arg_max(call.event_id, (call.dur_ns, -call.ts_ns)) AS event_id,
      arg_max(call.ts_ns, (call.dur_ns, -call.ts_ns)) AS from_ns,
      from_ns + max(call.dur_ns) AS to_ns
    FROM analyzed
    LEFT JOIN call ON call.run_id = analyzed.run_id AND call.rank = analyzed.rank
    GROUP BY analyzed.run_id, analyzed.rank
  )
SELECT
  run_id,
  rank,
  'allocations' AS subject,
  CASE
    WHEN share < $warning_share THEN 'none'
    WHEN share < $critical_share THEN 'warning'
    ELSE 'critical'
  END AS severity,
  share,
  $warning_share AS threshold,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the time in these calls; less where the GPU is busy meanwhile' AS saving_limit,
  'high' AS confidence,
  'After the first complete step the host still calls cudaMalloc/cudaFree (or their HIP equivalents), which can stall the device.' AS observation,
  'Let the caching allocator keep its memory: no torch.cuda.empty_cache() in the loop, sizes that do not change from step to step, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation.' AS advice,
  'name_summary' AS evidence,
  'category = ''cuda_runtime''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM total
