-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "tensor_cores"
-- version  = 1
-- summary  = "Detects GEMMs and convolutions that do not use tensor cores on a GPU that has them."
-- requires = ["analyzed_segments@1", "kernels@1", "matmul_rules@1", "ranks@1"]
-- needs    = ["gpu", "device_properties"]
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.5 }
-- compute_major  = { type = "BIGINT", default = 7, unit = "count", min = 1, doc = "Lowest major compute capability of NVIDIA GPUs with tensor cores." }
--
-- [columns]
-- subject   = { doc = "Always: GEMMs and convolutions. Ranks without an NVIDIA GPU of compute capability 7.0 or higher (compute_major), or without a kernel recognized as GEMM or convolution, have no row." }
-- share     = { doc = "Computation time attributed to GEMMs and convolutions without tensor cores, as a share of all computation time." }
-- count     = { doc = "Number of such segments." }
-- event_id  = { doc = "The kernel of the longest such segment." }
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
  with_tensor_cores AS (
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
  per_rank AS (
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
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the time in these kernels; the saving from lower precision depends on their shapes and on memory' AS saving_limit,
  'medium' AS confidence,
  'GEMMs or convolutions do not use tensor cores.' AS observation,
  'Use automatic mixed precision (bf16 or fp16) or, from A100 on, allow TF32 (torch.set_float32_matmul_precision(''high'')); keep sizes multiples of 8.' AS advice,
  'kernel_summary' AS evidence,
  'kind = ''computation''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM per_rank
SEMI JOIN with_tensor_cores ON with_tensor_cores.run_id = per_rank.run_id AND with_tensor_cores.rank = per_rank.rank
