-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "host_bound"
-- version  = 1
-- summary  = "Detects long GPU idle gaps in which the host is busy with work other than launching."
-- requires = ["analyzed_segments@1", "ranks@1"]
-- needs    = ["gpu", "launches"]
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.3 }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Gaps up to this duration are short: the host was busy launching." }
--
-- [columns]
-- subject   = { doc = "Always: host." }
-- share     = { doc = "Idle time in long gaps before activities that were launched late, as a share of analyzed_ns." }
-- count     = { doc = "Number of such gaps." }
-- event_id  = { doc = "The GPU activity that ends the longest such gap." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT run_id, rank, start_ns, segment_ns, after_id, steps, analyzed_ns, cause = 'host' AND gap_ns > $short_gap_ns AS matches
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
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'host' AS subject,
  share >= $warning_share AS is_finding,
  per_rank.steps > 0 AS is_representative,
  share,
  count,
  per_rank.steps,
  analyzed_ns,
  saving_ns,
  'the idle time in these gaps, without waits for data and blocking calls' AS saving_limit,
  CASE WHEN ranks.stacks THEN 'low' ELSE 'medium' END AS confidence,
  'The GPU idles in long gaps while the host launches no work: it runs Python, prepares data, compiles or is not scheduled.' AS observation,
  'Check what the host did in the longest gap (tw export trace), and move that work out of the loop, out of the launching thread, or out of the step.' AS advice,
  'idle_intervals' AS evidence,
  'cause = ''host_wait''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM per_rank
JOIN ranks ON ranks.run_id = per_rank.run_id AND ranks.rank = per_rank.rank
