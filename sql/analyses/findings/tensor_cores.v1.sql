-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "tensor_cores"
-- version  = 1
-- summary  = "Detects GEMMs and convolutions that do not use tensor cores on a GPU that has them."
-- requires = ["analyzed_segments@1", "kernels@1", "matmul_rules@1", "events@1", "graph_nodes@1", "ranks@1"]
-- needs    = ["gpu"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.5 }
-- min_share      = { type = "DOUBLE", unit = "ratio", default = 0.02, min = 0, doc = "Lowest share of the analyzed time that is a finding." }
-- compute_major  = { type = "BIGINT", default = 7, unit = "count", min = 1, doc = "Lowest major compute capability of NVIDIA GPUs with tensor cores." }
--
-- [columns]
-- subject   = { doc = "Always: GEMMs and convolutions. Ranks without an NVIDIA GPU of compute capability 7.0 or higher (compute_major; without device properties, by the names of its kernels), or without a kernel recognized as GEMM or convolution, have no row." }
-- share     = { doc = "Computation time attributed to GEMMs and convolutions without tensor cores, as a share of all computation time." }
-- count     = { doc = "Number of such segments." }
-- culprit   = { doc = "The kernel, and the operator enclosing its launch, with most of this time." }
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
  -- Without device properties, the names of kernels show what they were compiled for.
  named AS (
    SELECT DISTINCT run_id, rank
    FROM kernels
    WHERE regexp_matches(name, '(^|[^a-z])(volta|turing|ampere|hopper|blackwell)_|sm_?(7\d|8\d|9\d|10\d|12\d)_|cutlass_?(7|8|9|10)\d_|nvjet')
  ),
  with_tensor_cores AS (
    SELECT run_id, rank
    FROM generation
    WHERE major >= $compute_major AND NOT coalesce(is_amd, FALSE)
    UNION
    SELECT named.run_id, named.rank
    FROM named
    LEFT JOIN generation USING (run_id, rank)
    WHERE generation.major IS NULL
  ),
  segment AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.start_ns,
      segment.segment_ns,
      segment.kernel_id,
      segment.step,
      segment.steps,
      segment.analyzed_ns,
      coalesce(kernels.short_name, kernels.name) AS kernel_name,
      kernels.op_id,
      contains(kernels.launch_api, 'GraphLaunch') AS in_graph,
      name.uses_tensor_cores,
      NOT name.uses_tensor_cores AS matches
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
      arg_max(step, (segment_ns, -start_ns)) FILTER (NOT uses_tensor_cores) AS step,
      from_ns + max(segment_ns) FILTER (NOT uses_tensor_cores) AS to_ns
    FROM segment
    GROUP BY run_id, rank
    HAVING count(uses_tensor_cores) > 0
  ),
  labeled AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.segment_ns,
      segment.matches,
      segment.kernel_name[:80] || CASE
        WHEN segment.in_graph
        THEN coalesce(' under ' || node.op_name || if(node.how = 'by_order', ' (not certain)', ''), ' in a graph launch')
        ELSE coalesce(' under ' || op.name, '')
      END AS label
    FROM segment
    LEFT JOIN graph_nodes AS node
      ON node.run_id = segment.run_id
      AND node.rank = segment.rank
      AND node.event_id = segment.kernel_id
    LEFT JOIN events AS op ON op.run_id = segment.run_id AND op.rank = segment.rank AND op.event_id = segment.op_id
    WHERE segment.matches
  ),
  part AS (
    SELECT run_id, rank, label, sum(segment_ns)::BIGINT AS part_ns
    FROM labeled
    WHERE matches
    GROUP BY run_id, rank, label
  ),
  largest AS (
    SELECT run_id, rank, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
    FROM part
    GROUP BY run_id, rank
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'GEMMs and convolutions' AS subject,
  share >= $warning_share AND saving_ns >= $min_share * analyzed_ns AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the time in these kernels; the saving from lower precision depends on their shapes and on memory' AS saving_limit,
  'GEMMs or convolutions run without tensor cores for {lost}. The largest part is ' || coalesce(largest.culprit, 'unknown') || ' ({detail}).' AS observation,
  'Use automatic mixed precision (bf16 or fp16) or, from A100 on, allow TF32 (torch.set_float32_matmul_precision(''high'')); keep sizes multiples of 8.' AS advice,
  'kernel_summary' AS evidence,
  'kind = ''computation''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  largest.culprit,
  largest.part_ns // greatest(steps, 1) AS detail_ns
FROM per_rank
LEFT JOIN largest USING (run_id, rank)
SEMI JOIN with_tensor_cores USING (run_id, rank)
