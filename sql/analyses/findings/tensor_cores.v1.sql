-- /// tw
-- kind     = "analysis"
-- name     = "tensor_cores"
-- version  = 1
-- summary  = "Whether matrix products run without tensor cores on a GPU that has them."
-- requires = ["judged_pieces@1", "kernels@1", "matmul_rules@1", "ranks@1"]
-- needs    = ["gpu", "device_properties"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "A share from here on is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.5, unit = "ratio", min = 0, doc = "From here on it is critical." }
-- compute_major  = { type = "BIGINT", default = 7, unit = "count", min = 1, doc = "NVIDIA GPUs have tensor cores from this compute capability on." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: matrix products. A rank without an NVIDIA GPU of compute capability 7.0 or more, or without a kernel that is known to multiply matrices, has no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (over the threshold, but the trace has no complete step, so it may not show the usual) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Computation time that matrix products and convolutions without tensor cores own, over all computation time." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "From this share on it is a finding." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Pieces of such time." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps by which the rank is judged; 0 where it has none." }
-- judged_ns       = { type = "BIGINT", unit = "ns", doc = "How long the stretch is by which the rank is judged: its complete steps, else its GPU rows from first to last." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "At most this can be saved in the stretch: all such time." }
-- bound           = { type = "VARCHAR", doc = "Why it cannot be more. Savings of several findings do not add up." }
-- confidence      = { type = "VARCHAR", doc = "high, medium or low: how far the trace can tell that it is so." }
-- seen            = { type = "VARCHAR", doc = "What is seen, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis whose rows show it." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "Which of its rows, as a condition in SQL; null for all." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The kernel of the longest such piece." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where the worst instance begins." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Where it ends." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  name AS (
    SELECT kernel.name, arg_min(rule.uses_tensor_cores, rule.rule_id) AS uses_tensor_cores
    FROM (SELECT DISTINCT name FROM kernels WHERE kind = 'computation') AS kernel
    JOIN matmul_rules AS rule ON regexp_matches(kernel.name, rule.pattern)
    GROUP BY kernel.name
  ),
  device AS (
    SELECT run_id, rank, unnest(header -> '$.deviceProperties[*]') AS properties
    FROM ranks
  ),
  generation AS (
    SELECT
      run_id,
      rank,
      min(TRY_CAST(properties ->> '$.computeMajor' AS BIGINT)) AS major,
      bool_or(regexp_matches(properties ->> '$.name', '(?i)amd')) AS is_amd
    FROM device
    GROUP BY run_id, rank
  ),
  equipped AS (
    SELECT run_id, rank
    FROM generation
    WHERE major >= $compute_major AND NOT is_amd
  ),
  piece AS (
    SELECT
      piece.run_id,
      piece.rank,
      piece.start_ns,
      piece.piece_ns,
      piece.kernel_id,
      piece.steps,
      piece.judged_ns,
      name.uses_tensor_cores
    FROM judged_pieces AS piece
    JOIN kernels ON kernels.run_id = piece.run_id AND kernels.rank = piece.rank AND kernels.event_id = piece.kernel_id
    LEFT JOIN name ON name.name = kernels.name
    WHERE piece.kind = 'computation'
  ),
  spent AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(judged_ns) AS judged_ns,
      count(*) FILTER (NOT uses_tensor_cores) AS count,
      coalesce(sum(piece_ns) FILTER (NOT uses_tensor_cores), 0)::BIGINT AS saving_ns,
      saving_ns / sum(piece_ns)::BIGINT AS share,
      arg_max(kernel_id, (piece_ns, -start_ns)) FILTER (NOT uses_tensor_cores) AS event_id,
      arg_max(start_ns, (piece_ns, -start_ns)) FILTER (NOT uses_tensor_cores) AS from_ns,
      from_ns + max(piece_ns) FILTER (NOT uses_tensor_cores) AS to_ns
    FROM piece
    GROUP BY run_id, rank
    HAVING count(uses_tensor_cores) > 0
  )
SELECT
  run_id,
  rank,
  'matrix products' AS subject,
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
  'the time of these kernels; what lower precision would leave of it depends on their shapes and on memory' AS bound,
  CASE WHEN steps = 0 THEN 'low' ELSE 'medium' END AS confidence,
  'Matrix products or convolutions run on the ordinary units, though the GPU has tensor cores.' AS seen,
  'Use automatic mixed precision (bf16 or fp16), or from A100 on allow TF32 (torch.set_float32_matmul_precision(''high'')); keep sizes multiples of 8.' AS advice,
  'kernel_summary' AS evidence,
  'kind = ''computation''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM spent
SEMI JOIN equipped ON equipped.run_id = spent.run_id AND equipped.rank = spent.rank
