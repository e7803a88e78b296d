-- /// tw
-- kind     = "analysis"
-- name     = "pageable_copies"
-- version  = 1
-- summary  = "Whether copies from or to pageable memory take time in which the GPU does nothing else."
-- requires = ["judged_pieces@1", "kernels@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.02, unit = "ratio", min = 0, doc = "A share from here on is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "From here on it is critical." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: copies of pageable memory. A rank whose copies do not tell what memory they are of has no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (over the threshold, but the trace has no complete step, so it may not show the usual) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Time with such a copy running, and no computation and no communication, over judged_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "From this share on it is a finding." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Stretches of such time." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps by which the rank is judged; 0 where it has none." }
-- judged_ns       = { type = "BIGINT", unit = "ns", doc = "How long the stretch is by which the rank is judged: its complete steps, else its GPU rows from first to last." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "At most this can be saved in the stretch: all such time." }
-- bound           = { type = "VARCHAR", doc = "Why it cannot be more. Savings of several findings do not add up." }
-- confidence      = { type = "VARCHAR", doc = "high, medium or low: how far the trace can tell that it is so." }
-- seen            = { type = "VARCHAR", doc = "What is seen, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis whose rows show it." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "Which of its rows, as a condition in SQL; null for all." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The copy that was alone longest at a stretch." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where the worst instance begins." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where it ends." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  piece AS (
    SELECT
      piece.run_id,
      piece.rank,
      piece.start_ns,
      piece.piece_ns,
      piece.kernel_id,
      piece.steps,
      piece.judged_ns,
      regexp_matches(copy.name, '(?i)pageable') AS counts
    FROM judged_pieces AS piece
    LEFT JOIN kernels AS copy
      ON copy.run_id = piece.run_id AND copy.rank = piece.rank AND copy.event_id = piece.kernel_id
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
  ),
  told AS (
    SELECT DISTINCT run_id, rank
    FROM kernels
    WHERE activity = 'memcpy' AND regexp_matches(name, '(?i)pageable|pinned')
  )
SELECT
  run_id,
  rank,
  'copies of pageable memory' AS subject,
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
  'the time in which only these copies run; from pinned memory they are faster and can run beside computation' AS bound,
  CASE WHEN steps = 0 THEN 'low' ELSE 'high' END AS confidence,
  'Copies between the GPU and pageable memory run while nothing else does: they go through a buffer of the driver, and the host waits for them.' AS seen,
  'Pin the memory (DataLoader with pin_memory=True, tensor.pin_memory()) and copy with non_blocking=True.' AS advice,
  'memory_bandwidth_summary' AS evidence,
  'direction IN (''HtoD'', ''DtoH'')' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM spent
SEMI JOIN told ON told.run_id = spent.run_id AND told.rank = spent.rank
