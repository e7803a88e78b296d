-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "launch_bound"
-- version  = 1
-- summary  = "Detects short GPU idle gaps because the host cannot launch kernels fast enough (launch-bound)."
-- requires = ["analyzed_segments@1", "kernels@1", "events@1", "ranks@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.3 }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Gaps up to this duration are short: the host was busy launching." }
--
-- [columns]
-- subject   = { doc = "Always: launches." }
-- share     = { doc = "Idle time in short gaps until work is launched, its call has returned and it usually starts, as a share of analyzed_ns." }
-- count     = { doc = "Number of such gaps." }
-- culprit   = { doc = "The operator, or else the kernel, that most of this time is before." }
-- event_id  = { doc = "The GPU activity that ends the longest such gap." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  segment.cause IN ('host', 'call', 'latency') AND segment.gap_ns <= $short_gap_ns AS matches,
  coalesce(op.name, next.short_name, next.name, 'unknown')[:80] AS label,
  segment.segment_ns AS lost_ns,
  segment.after_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  CASE WHEN ranks.stacks THEN 1 ELSE 0 END AS doubt,
  {
    subject: 'launches',
    saving_limit: 'the idle time in these gaps, with zero launch overhead',
    observation: 'Kernels finish before the host launches the next one: the GPU idles {lost} in short gaps. The largest part of it is before {culprit} ({detail}).',
    advice: 'Use CUDA graphs, fuse small kernels (torch.compile, fused or foreach optimizers), or give each kernel more work with a larger batch.',
    evidence: 'idle_intervals',
    evidence_filter: 'cause IN (''host'', ''call'', ''latency'')',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM analyzed_segments AS segment
LEFT JOIN kernels AS next
  ON next.run_id = segment.run_id AND next.rank = segment.rank AND next.event_id = segment.after_id
LEFT JOIN events AS op ON op.run_id = next.run_id AND op.rank = next.rank AND op.event_id = next.op_id
JOIN ranks ON ranks.run_id = segment.run_id AND ranks.rank = segment.rank
