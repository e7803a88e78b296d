-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "launch_bound"
-- version  = 1
-- summary  = "Detects GPU idle time because the host cannot launch kernels fast enough, most of it in short gaps (launch-bound)."
-- requires = ["analyzed_segments@1", "kernels@1", "events@1", "ranks@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.3 }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Gaps up to this duration are short: the host was busy launching." }
-- graph_gap_ns   = { type = "BIGINT", default = 700, unit = "ns", min = 0, doc = "What CUDA graphs leave of a gap, as in `what_if`: it is not saved." }
--
-- [columns]
-- subject   = { doc = "Always: launches." }
-- share     = { doc = "Idle time in short gaps until work is launched, its call has returned and it usually starts, and in long ones until it is launched, as a share of analyzed_ns. Where long gaps have most of it, `host_bound` has the finding, and this is 0." }
-- count     = { doc = "Number of such gaps." }
-- culprit   = { doc = "The operator, or else the kernel, that most of this time is before." }
-- event_id  = { doc = "The GPU activity that ends the longest such gap." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  gap AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      gap_ns <= $short_gap_ns AS is_short,
      coalesce(cause IN ('host', 'call', 'latency') AND (gap_ns <= $short_gap_ns OR cause = 'host'), FALSE) AS is_late,
      after_id,
      step,
      sum(segment_ns - CASE WHEN gap_ns > 0 THEN segment_ns * least($graph_gap_ns, gap_ns) // gap_ns ELSE 0 END)::BIGINT AS lost_ns,
      sum(segment_ns) AS idle_ns,
      min(start_ns) AS from_ns,
      max(start_ns + segment_ns) AS to_ns
    FROM analyzed_segments
    GROUP BY run_id, rank, is_short, is_late, after_id, step
  )
SELECT
  gap.run_id,
  gap.rank,
  gap.steps,
  gap.analyzed_ns,
  -- As in `host_bound`, so that one of both has the finding.
  gap.is_late
  AND sum(gap.idle_ns) FILTER (gap.is_late AND gap.is_short) OVER of_rank > coalesce(sum(gap.idle_ns) FILTER (gap.is_late AND NOT gap.is_short) OVER of_rank, 0) AS matches,
  coalesce(op.name, next.short_name, next.name, 'unknown')[:80] AS label,
  gap.lost_ns,
  gap.after_id AS event_id,
  gap.step,
  gap.from_ns,
  gap.to_ns,
  CASE WHEN ranks.stacks THEN 1 ELSE 0 END AS doubt,
  {
    subject: 'launches',
    saving_limit: 'the idle time in these gaps, but for the gaps between kernels of a CUDA graph',
    observation: 'Kernels finish before the host launches the next one: the GPU idles {lost}, mostly in short gaps. The largest part of it is before {culprit} ({detail}).',
    advice: 'Use CUDA graphs, fuse small kernels (torch.compile, fused or foreach optimizers), or give each kernel more work with a larger batch.',
    evidence: 'idle_intervals',
    evidence_filter: 'cause IN (''host'', ''call'', ''latency'')',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM gap
LEFT JOIN kernels AS next
  ON next.run_id = gap.run_id AND next.rank = gap.rank AND next.event_id = gap.after_id
LEFT JOIN events AS op ON op.run_id = next.run_id AND op.rank = next.rank AND op.event_id = next.op_id
JOIN ranks ON ranks.run_id = gap.run_id AND ranks.rank = gap.rank
WINDOW of_rank AS (PARTITION BY gap.run_id, gap.rank)
