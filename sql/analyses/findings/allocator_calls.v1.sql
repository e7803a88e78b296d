-- /// tw
-- kind     = "analysis"
-- name     = "allocator_calls"
-- version  = 1
-- summary  = "Whether the host goes on calling the driver for memory after the first complete step."
-- requires = ["runtime@1", "steps@1"]
-- needs    = ["gpu", "launches", "steps>=2"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.01, unit = "ratio", min = 0, doc = "A share from here on is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.05, unit = "ratio", min = 0, doc = "From here on it is critical." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: allocations. A rank with fewer than two complete steps has no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (over the threshold, but the trace has no complete step, so it may not show the usual) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Time in calls that allocate or free over judged_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "From this share on it is a finding." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Such calls." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps by which the rank is judged; 0 where it has none." }
-- judged_ns       = { type = "BIGINT", unit = "ns", doc = "The periods of the complete steps after the first, added up: in the first one allocations may be needed." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "At most this can be saved in the stretch: the time in these calls." }
-- bound           = { type = "VARCHAR", doc = "Why it cannot be more. Savings of several findings do not add up." }
-- confidence      = { type = "VARCHAR", doc = "high, medium or low: how far the trace can tell that it is so." }
-- seen            = { type = "VARCHAR", doc = "What is seen, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis whose rows show it." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "Which of its rows, as a condition in SQL; null for all." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The longest such call." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where the worst instance begins." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where it ends." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  settled AS (
    SELECT run_id, rank, step, period_ns
    FROM steps
    WHERE NOT partial AND period_ns > 0
    QUALIFY row_number() OVER (PARTITION BY run_id, rank ORDER BY host_start_ns, step) > 1
  ),
  judged AS (
    SELECT run_id, rank, count(*) AS steps, sum(period_ns)::BIGINT AS judged_ns
    FROM settled
    GROUP BY run_id, rank
  ),
  call AS (
    SELECT
      runtime.run_id,
      runtime.rank,
      runtime.event_id,
      runtime.ts_ns,
      runtime.dur_ns,
      -- The latest end of earlier calls: up to here the time is already counted.
      greatest(runtime.ts_ns, coalesce(max(runtime.ts_ns + runtime.dur_ns) OVER earlier, runtime.ts_ns)) AS fresh_ns
    FROM runtime
    SEMI JOIN settled
      ON settled.run_id = runtime.run_id AND settled.rank = runtime.rank AND settled.step = runtime.step
    WHERE regexp_matches(runtime.name, '^(cuda|hip)(Malloc|Free)(Host|Managed|Pitch|Array|3D)?$|^(cuda|hip)Host(Alloc|Malloc|Free)$')
    WINDOW earlier AS (
      PARTITION BY runtime.run_id, runtime.rank
      ORDER BY runtime.ts_ns, runtime.event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  spent AS (
    SELECT
      judged.run_id,
      judged.rank,
      any_value(judged.steps) AS steps,
      any_value(judged.judged_ns) AS judged_ns,
      count(call.event_id) AS count,
      coalesce(sum(greatest(call.ts_ns + call.dur_ns - call.fresh_ns, 0)), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(judged.judged_ns) AS share,
      arg_max(call.event_id, (call.dur_ns, -call.ts_ns)) AS event_id,
      arg_max(call.ts_ns, (call.dur_ns, -call.ts_ns)) AS from_ns,
      from_ns + max(call.dur_ns) AS to_ns
    FROM judged
    LEFT JOIN call ON call.run_id = judged.run_id AND call.rank = judged.rank
    GROUP BY judged.run_id, judged.rank
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
  judged_ns,
  saving_ns,
  'the time in these calls; what the GPU does meanwhile goes on' AS bound,
  'high' AS confidence,
  'After the first complete step the host still asks the driver for memory or gives it back, which can stop the whole device.' AS seen,
  'Let the caching allocator keep what it has: no torch.cuda.empty_cache() in the loop, sizes that do not change from step to step, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation.' AS advice,
  'name_summary' AS evidence,
  'category = ''cuda_runtime''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM spent
