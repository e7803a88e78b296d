-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "tensor_cores"
-- version  = 1
-- summary  = "Detects GEMMs and convolutions that do not use tensor cores on a GPU that has them."
-- requires = ["analyzed_segments@1", "kernels@1", "matmul_rules@1", "events@1", "graph_nodes@1", "recorded_devices@1"]
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
  generation AS (
    SELECT run_id, rank, min(capability_major) AS major, bool_or(regexp_matches(name, '(?i)amd')) AS is_amd
    FROM recorded_devices
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
      name.uses_tensor_cores
    FROM analyzed_segments AS segment
    JOIN kernels ON kernels.run_id = segment.run_id AND kernels.rank = segment.rank AND kernels.event_id = segment.kernel_id
    LEFT JOIN name ON name.name = kernels.name
    WHERE segment.kind = 'computation'
  ),
  computed AS (
    SELECT
      run_id,
      rank,
      sum(segment_ns)::BIGINT AS whole_ns,
      coalesce(sum(segment_ns) FILTER (NOT uses_tensor_cores), 0) >= $min_share * any_value(analyzed_ns) AS may_find
    FROM segment
    GROUP BY run_id, rank
    HAVING count(uses_tensor_cores) > 0
  )
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  computed.whole_ns,
  computed.may_find,
  NOT segment.uses_tensor_cores AS matches,
  segment.kernel_name[:80] || CASE
    WHEN segment.in_graph
    THEN coalesce(' under ' || node.op_name || if(node.how = 'by_order', ' (not certain)', ''), ' in a graph launch')
    ELSE coalesce(' under ' || op.name, '')
  END AS label,
  segment.segment_ns AS lost_ns,
  segment.kernel_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  {
    subject: 'GEMMs and convolutions',
    saving_limit: 'the time in these kernels; the saving from lower precision depends on their shapes and on memory',
    observation: 'GEMMs or convolutions run without tensor cores for {lost}. The largest part is {culprit} ({detail}).',
    advice: 'Use automatic mixed precision (fp16; from A100 on, bf16) or, from A100 on, allow TF32 (torch.set_float32_matmul_precision(''high'')); keep sizes multiples of 8.',
    evidence: 'kernel_summary',
    evidence_filter: 'kind = ''computation''',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM segment
JOIN computed USING (run_id, rank)
SEMI JOIN with_tensor_cores USING (run_id, rank)
LEFT JOIN graph_nodes AS node
  ON NOT segment.uses_tensor_cores
  AND node.run_id = segment.run_id
  AND node.rank = segment.rank
  AND node.event_id = segment.kernel_id
LEFT JOIN events AS op
  ON NOT segment.uses_tensor_cores
  AND op.run_id = segment.run_id
  AND op.rank = segment.rank
  AND op.event_id = segment.op_id
