-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "launch_bound"
-- version  = 1
-- summary  = "Detects short GPU idle gaps because the host cannot launch kernels fast enough (launch-bound)."
-- requires = ["analyzed_segments@1", "kernels@1", "events@1", "ranks@1"]
-- needs    = ["gpu", "launches"]
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.3 }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Gaps up to this duration are short: the host was busy launching." }
--
-- [columns]
-- subject   = { doc = "Always: launches." }
-- share     = { doc = "Idle time in short gaps before activities that were launched late, as a share of analyzed_ns." }
-- count     = { doc = "Number of such gaps." }
-- culprit   = { doc = "The operator, or else the kernel, that most of this time is before." }
-- event_id  = { doc = "The GPU activity that ends the longest such gap." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, segment_ns, after_id, step, steps, analyzed_ns, cause = 'host' AND gap_ns <= $short_gap_ns AS matches
    FROM analyzed_segments
  ),
  per_rank AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      count(*) FILTER (matches) AS count,
      coalesce(sum(segment_ns) FILTER (matches), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(analyzed_ns) AS share,
      arg_max(after_id, (segment_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (matches) AS from_ns,
      arg_max(step, (segment_ns, -start_ns)) FILTER (matches) AS step,
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  ),
  labeled AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.segment_ns,
      segment.matches,
      coalesce(op.name, next.short_name, next.name, 'unknown')[:80] AS label
    FROM segment
    JOIN kernels AS next ON next.run_id = segment.run_id AND next.rank = segment.rank AND next.event_id = segment.after_id
    LEFT JOIN events AS op ON op.run_id = next.run_id AND op.rank = next.rank AND op.event_id = next.op_id
    WHERE segment.matches
  ),
  part AS (
    SELECT run_id, rank, label, sum(segment_ns)::BIGINT AS part_ns
    FROM labeled
    WHERE matches
    GROUP BY run_id, rank, label
  ),
  largest AS (
    SELECT run_id, rank, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
    FROM part
    GROUP BY run_id, rank
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'launches' AS subject,
  share >= $warning_share AS is_finding,
  per_rank.steps > 0 AS is_representative,
  share,
  count,
  per_rank.steps,
  analyzed_ns,
  saving_ns,
  'the idle time in these gaps, with zero launch overhead' AS saving_limit,
  CASE WHEN ranks.stacks THEN 'low' ELSE 'medium' END AS confidence,
  'Kernels finish before the host launches the next one: the GPU idles {lost} in short gaps. The largest part of it is before ' || coalesce(largest.culprit, 'unknown') || ' ({detail}).' AS observation,
  'Use CUDA graphs, fuse small kernels (torch.compile, fused or foreach optimizers), or give each kernel more work with a larger batch.' AS advice,
  'idle_intervals' AS evidence,
  'cause = ''host_wait''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  largest.culprit,
  largest.part_ns // greatest(per_rank.steps, 1) AS detail_ns
FROM per_rank
LEFT JOIN largest ON largest.run_id = per_rank.run_id AND largest.rank = per_rank.rank
JOIN ranks ON ranks.run_id = per_rank.run_id AND ranks.rank = per_rank.rank
