-- /// tw
-- kind     = "analysis"
-- name     = "host_bound"
-- version  = 1
-- summary  = "Whether the GPU stands idle for long because the host does something else than launching."
-- requires = ["judged_pieces@1", "ranks@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "A share from here on is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.3, unit = "ratio", min = 0, doc = "From here on it is critical." }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "A gap up to this long is short: the host was busy launching, not away." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: host." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (over the threshold, but the trace has no complete step, so it may not show the usual) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Idle time in long gaps before rows that were launched late over judged_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "From this share on it is a finding." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Such gaps." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps by which the rank is judged; 0 where it has none." }
-- judged_ns       = { type = "BIGINT", unit = "ns", doc = "How long the stretch is by which the rank is judged: its complete steps, else its GPU rows from first to last." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "At most this can be saved in the stretch: all such time." }
-- bound           = { type = "VARCHAR", doc = "Why it cannot be more. Savings of several findings do not add up." }
-- confidence      = { type = "VARCHAR", doc = "high, medium or low: how far the trace can tell that it is so." }
-- seen            = { type = "VARCHAR", doc = "What is seen, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis whose rows show it." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "Which of its rows, as a condition in SQL; null for all." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The GPU row that ends the longest such gap." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where the worst instance begins." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where it ends." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  piece AS (
    SELECT run_id, rank, start_ns, piece_ns, after_id, steps, judged_ns, cause = 'host' AND gap_ns > $short_gap_ns AS counts
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
  spent.run_id,
  spent.rank,
  'host' AS subject,
  CASE
    WHEN share < $warning_share THEN 'none'
    WHEN spent.steps = 0 THEN 'info'
    WHEN share < $critical_share THEN 'warning'
    ELSE 'critical'
  END AS severity,
  share,
  $warning_share AS threshold,
  count,
  spent.steps,
  judged_ns,
  saving_ns,
  'the idle time of these gaps; waits for data and blocking calls are not among it' AS bound,
  CASE WHEN spent.steps = 0 OR ranks.stacks THEN 'low' ELSE 'medium' END AS confidence,
  'The GPU has nothing to do for long stretches in which the host launches nothing: it runs Python, prepares data, compiles or is not scheduled.' AS seen,
  'Look at what the host did in the longest gap (tw export trace), and take it out of the loop, out of the thread that launches, or off the step.' AS advice,
  'idle_intervals' AS evidence,
  'cause = ''host_wait''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM spent
JOIN ranks ON ranks.run_id = spent.run_id AND ranks.rank = spent.rank
