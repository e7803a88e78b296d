-- /// tw
-- kind     = "analysis"
-- name     = "tensor_cores"
-- version  = 1
-- summary  = "Detects GEMMs and convolutions that do not use tensor cores on a GPU that has them."
-- requires = ["analyzed_segments@1", "kernels@1", "matmul_rules@1", "ranks@1"]
-- needs    = ["gpu", "device_properties"]
-- grain    = ["run_id", "rank", "subject"]
-- order    = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", default = 0.5, unit = "ratio", min = 0, doc = "Critical threshold." }
-- compute_major  = { type = "BIGINT", default = 7, unit = "count", min = 1, doc = "Lowest major compute capability of NVIDIA GPUs with tensor cores." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "Always: GEMMs and convolutions. Ranks without an NVIDIA GPU of compute capability 7.0 or higher (compute_major), or without a kernel recognized as GEMM or convolution, have no row." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Computation time attributed to GEMMs and convolutions without tensor cores, as a share of all computation time." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of such segments." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its GPU window if there are none." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: all such time." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The kernel of the longest such segment." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
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
  segment AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.start_ns,
      segment.segment_ns,
      segment.kernel_id,
      segment.steps,
      segment.analyzed_ns,
      name.uses_tensor_cores
    FROM analyzed_segments AS segment
    JOIN kernels ON kernels.run_id = segment.run_id AND kernels.rank = segment.rank AND kernels.event_id = segment.kernel_id
    LEFT JOIN name ON name.name = kernels.name
    WHERE segment.kind = 'computation'
  ),
  total AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      count(*) FILTER (NOT uses_tensor_cores) AS count,
      coalesce(sum(segment_ns) FILTER (NOT uses_tensor_cores), 0)::BIGINT AS saving_ns,
      saving_ns / sum(segment_ns)::BIGINT AS share,
      arg_max(kernel_id, (segment_ns, -start_ns)) FILTER (NOT uses_tensor_cores) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (NOT uses_tensor_cores) AS from_ns,
      from_ns + max(segment_ns) FILTER (NOT uses_tensor_cores) AS to_ns
    FROM segment
    GROUP BY run_id, rank
    HAVING count(uses_tensor_cores) > 0
  )
SELECT
  run_id,
  rank,
  'GEMMs and convolutions' AS subject,
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
  analyzed_ns,
  saving_ns,
  'the time in these kernels; the saving from lower precision depends on their shapes and on memory' AS saving_limit,
  CASE WHEN steps = 0 THEN 'low' ELSE 'medium' END AS confidence,
  'GEMMs or convolutions do not use tensor cores.' AS observation,
  'Use automatic mixed precision (bf16 or fp16) or, from A100 on, allow TF32 (torch.set_float32_matmul_precision(''high'')); keep sizes multiples of 8.' AS advice,
  'kernel_summary' AS evidence,
  'kind = ''computation''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM total
SEMI JOIN equipped ON equipped.run_id = total.run_id AND equipped.rank = total.rank
