-- /// tw
-- kind     = "analysis"
-- name     = "exposed_comm"
-- version  = 1
-- summary  = "Whether communication that no computation hides takes a large part of the time."
-- requires = ["judged_pieces@1"]
-- needs    = ["gpu", "collectives"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "A share from here on is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.3, unit = "ratio", min = 0, doc = "From here on it is critical." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: communication." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (over the threshold, but the trace has no complete step, so it may not show the usual) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Time with communication and no computation running over judged_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "From this share on it is a finding." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Stretches of exposed communication." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps by which the rank is judged; 0 where it has none." }
-- judged_ns       = { type = "BIGINT", unit = "ns", doc = "How long the stretch is by which the rank is judged: its complete steps, else its GPU rows from first to last." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "At most this can be saved in the stretch: all such time." }
-- bound           = { type = "VARCHAR", doc = "Why it cannot be more. Savings of several findings do not add up." }
-- confidence      = { type = "VARCHAR", doc = "high, medium or low: how far the trace can tell that it is so." }
-- seen            = { type = "VARCHAR", doc = "What is seen, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis whose rows show it." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "Which of its rows, as a condition in SQL; null for all." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The communication that was exposed longest at a stretch." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where the worst instance begins." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where it ends." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  piece AS (
    SELECT run_id, rank, start_ns, piece_ns, kernel_id, steps, judged_ns, kind = 'communication' AS counts
    FROM judged_pieces
  ),
  spent AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(judged_ns) AS judged_ns,
      count(*) FILTER (counts) AS count,
      coalesce(sum(piece_ns) FILTER (counts), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(judged_ns) AS share,
      arg_max(kernel_id, (piece_ns, -start_ns)) FILTER (counts) AS event_id,
      arg_max(start_ns, (piece_ns, -start_ns)) FILTER (counts) AS from_ns,
      from_ns + max(piece_ns) FILTER (counts) AS to_ns
    FROM piece
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  'communication' AS subject,
  CASE
    WHEN share < $warning_share THEN 'none'
    WHEN steps = 0 THEN 'info'
    WHEN share < $critical_share THEN 'warning'
    ELSE 'critical'
  END AS severity,
  share,
  $warning_share AS threshold,
  count,
  steps,
  judged_ns,
  saving_ns,
  'all communication that no computation hides; where ranks wait for each other, a faster network saves less' AS bound,
  CASE WHEN steps = 0 THEN 'low' ELSE 'high' END AS confidence,
  'The GPU communicates and computes nothing meanwhile.' AS seen,
  'See first whether it waits for a slow rank (stragglers). Else overlap it with computation (larger or earlier buckets, prefetching of shards), send less (accumulate gradients, compress, lower precision), or keep it on the fast links.' AS advice,
  'comm_by_group' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM spent
