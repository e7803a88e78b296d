-- /// tw
-- kind     = "analysis"
-- name     = "low_gpu_use"
-- version  = 1
-- summary  = "Whether a rank's GPU stands idle for most of the time."
-- requires = ["judged_pieces@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.5, unit = "ratio", min = 0, doc = "A share from here on is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.8, unit = "ratio", min = 0, doc = "From here on it is critical." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: GPU. A rank whose complete steps hold no GPU row has no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (over the threshold, but the trace has no complete step, so it may not show the usual) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Idle time over judged_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "From this share on it is a finding." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Stretches of idle time, cut where the cause changes." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps by which the rank is judged; 0 where it has none." }
-- judged_ns       = { type = "BIGINT", unit = "ns", doc = "How long the stretch is by which the rank is judged: its complete steps, else its GPU rows from first to last." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "At most this can be saved in the stretch: all such time." }
-- bound           = { type = "VARCHAR", doc = "Why it cannot be more. Savings of several findings do not add up." }
-- confidence      = { type = "VARCHAR", doc = "high, medium or low: how far the trace can tell that it is so." }
-- seen            = { type = "VARCHAR", doc = "What is seen, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis whose rows show it." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "Which of its rows, as a condition in SQL; null for all." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The GPU row that ends the longest stretch without a change of cause; null before the first and after the last row." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where the worst instance begins." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where it ends." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  piece AS (
    SELECT run_id, rank, start_ns, piece_ns, after_id, steps, judged_ns, kind = 'idle' AS counts
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
      arg_max(after_id, (piece_ns, -start_ns)) FILTER (counts) AS event_id,
      arg_max(start_ns, (piece_ns, -start_ns)) FILTER (counts) AS from_ns,
      from_ns + max(piece_ns) FILTER (counts) AS to_ns
    FROM piece
    GROUP BY run_id, rank
  )
SELECT
  run_id,
  rank,
  'GPU' AS subject,
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
  'all idle time: the same GPU rows cannot take less than they do' AS bound,
  CASE WHEN steps = 0 THEN 'low' ELSE 'high' END AS confidence,
  'Nothing runs on the GPU for a large part of the time.' AS seen,
  'See which cause the other findings and the account name first. Where the batch is small, a larger one gives each launch more work.' AS advice,
  CASE WHEN steps = 0 THEN 'window_account' ELSE 'step_account' END AS evidence,
  'starts_with(part, ''idle_'')' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM spent
-- A stretch without any GPU row says nothing of how the GPU is used.
WHERE saving_ns < judged_ns
