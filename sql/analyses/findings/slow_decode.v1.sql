-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "slow_decode"
-- version  = 1
-- summary  = "Detects decode steps of an inference server in which the GPU idles because the host launches late."
-- requires = ["serving_periods@1", "analyzed_segments@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.3 }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Gaps up to this duration are short: the host was busy launching." }
-- other_share    = { type = "DOUBLE", default = 0.05, unit = "ratio", min = 0, doc = "From this share of analyzed_ns on, `launch_bound` or `host_bound` has the finding." }
--
-- [columns]
-- subject   = { doc = "Always: decode. Ranks on which no two decode steps follow each other have no row." }
-- severity  = { doc = "critical, warning, info (late launches take so much of all steps that `launch_bound` or `host_bound` has the finding, and this one says what they cost per output token) or none." }
-- share     = { doc = "Idle time until pending work is launched, as in `launch_bound` and `host_bound`, as a share of the time from each decode step's GPU work to that of the decode step that follows." }
-- count     = { doc = "Number of such segments." }
-- saving_ns = { doc = "Upper bound on the time saved in the analyzed interval: this idle time." }
-- event_id  = { doc = "The GPU activity that ends the longest such segment." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      run_id,
      rank,
      start_ns,
      start_ns + segment_ns AS end_ns,
      segment_ns,
      after_id,
      step,
      steps,
      analyzed_ns,
      coalesce(cause = 'host' OR (cause IN ('call', 'latency') AND gap_ns <= $short_gap_ns), FALSE) AS is_late
    FROM analyzed_segments
  ),
  per_rank AS (
    SELECT run_id, rank, steps, analyzed_ns, coalesce(sum(segment_ns) FILTER (is_late), 0) / analyzed_ns AS late_share
    FROM segment
    GROUP BY run_id, rank, steps, analyzed_ns
  ),
  decode_part AS (
    SELECT
      segment.run_id,
      segment.rank,
      period.event_id AS step_id,
      segment.step,
      segment.after_id,
      segment.is_late,
      greatest(segment.start_ns, period.start_ns) AS from_ns,
      least(segment.end_ns, period.next_ns) AS to_ns
    FROM segment
    JOIN serving_periods AS period
      ON period.run_id = segment.run_id
      AND period.rank = segment.rank
      AND period.phase = 'decode'
      AND period.next_phase = 'decode'
      AND segment.start_ns < period.next_ns
      AND segment.end_ns > period.start_ns
  ),
  decode AS (
    SELECT
      run_id,
      rank,
      sum(to_ns - from_ns) AS decode_ns,
      count(DISTINCT step_id) AS tokens,
      count(*) FILTER (is_late) AS count,
      coalesce(sum(to_ns - from_ns) FILTER (is_late), 0)::BIGINT AS late_ns,
      arg_max(after_id, (to_ns - from_ns, -from_ns)) FILTER (is_late) AS event_id,
      arg_max(from_ns, (to_ns - from_ns, -from_ns)) FILTER (is_late) AS from_ns,
      arg_max(to_ns, (to_ns - from_ns, -from_ns)) FILTER (is_late) AS to_ns,
      arg_max(step, (to_ns - from_ns, -from_ns)) FILTER (is_late) AS step
    FROM decode_part
    GROUP BY run_id, rank
  )
SELECT
  decode.run_id,
  decode.rank,
  'decode' AS subject,
  decode.late_ns / decode.decode_ns AS share,
  TRUE AS is_representative,
  per_rank.late_share >= $other_share AS is_context,
  decode.count,
  per_rank.steps,
  per_rank.analyzed_ns,
  decode.late_ns AS saving_ns,
  'the idle time in decode steps, with zero launch overhead' AS saving_limit,
  'An output token takes ' || format('{:.2f}', decode.decode_ns / decode.tokens / 1e6) || ' ms on average of ' || decode.tokens
  || ' decode steps, and would take ' || format('{:.2f}', (decode.decode_ns - decode.late_ns) / decode.tokens / 1e6)
  || ' ms if the GPU did not idle because the host launches late (' || format('{:.1f}', 100 * share) || ' %).' AS observation,
  'Capture the decode step in a CUDA graph for each batch size that occurs, schedule the next step while the GPU computes (overlap or asynchronous scheduling), and let a larger batch share the launches.' AS advice,
  'serving_summary' AS evidence,
  'phase = ''decode''' AS evidence_filter,
  decode.event_id,
  decode.from_ns,
  decode.to_ns,
  decode.step
FROM decode
JOIN per_rank USING (run_id, rank)
