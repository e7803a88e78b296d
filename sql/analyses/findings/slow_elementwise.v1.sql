-- /// tw
-- kind     = "analysis"
-- like     = "slow_operators_base@1"
-- name     = "slow_elementwise"
-- version  = 1
-- summary  = "Detects elementwise operators, norms, softmax and copies on large tensors that stay far below the memory bandwidth."
-- requires = ["analyzed_segments@1", "op_limits@1", "kernels@1", "rank_devices@1"]
-- needs    = ["gpu", "shapes"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
-- max_bandwidth  = { type = "DOUBLE", unit = "ratio", default = 0.6, min = 0, max = 1, doc = "Operators that reach at least this part of the achievable bandwidth are not counted." }
-- achievable     = { type = "DOUBLE", unit = "ratio", default = 0.85, min = 0, max = 1, doc = "Achievable part of the peak bandwidth, unless the 95 % quantile of such operators of the rank is higher, up to the peak." }
-- large_bytes    = { type = "BIGINT", unit = "bytes", default = 100000000, min = 0, doc = "Size of the L2 cache where it is not known: only operators that read and write more bytes than the cache has are counted." }
--
-- [columns]
-- subject   = { doc = "Always: elementwise operators. Those of a copy engine are not: see `exposed_copies`. Ranks without elementwise operators, norms, softmax or copies have no row; on a device without known peaks (`device_specs`) it could not be checked." }
-- share     = { doc = "Time that such operators lose against the achievable bandwidth, as a share of analyzed_ns." }
-- count     = { doc = "Number of such operators, of names and shapes that take at least 1 % of the analyzed time." }
-- culprit   = { doc = "Name and shapes of the operator that loses most." }
-- event_id  = { doc = "The main kernel of the longest one." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  moved AS (
    SELECT
      op.run_id,
      op.rank,
      op.kernel_id,
      op.name || ' ' || op.shapes AS label,
      op.bytes / op.gpu_union_ns AS bytes_per_ns,
      op.limit_bytes_per_ns,
      op.bytes > coalesce(device.l2_bytes, $large_bytes) AS is_large,
      op.device_name
    FROM op_limits AS op
    JOIN kernels
      ON kernels.run_id = op.run_id AND kernels.rank = op.rank AND kernels.event_id = op.kernel_id AND kernels.kind = 'computation'
    LEFT JOIN rank_devices AS device ON device.run_id = op.run_id AND device.rank = op.rank
    WHERE op.family IN ('elementwise', 'norm', 'softmax', 'copy')
  ),
  achieved AS (
    SELECT run_id, rank, quantile_disc(bytes_per_ns, 0.95) AS bytes_per_ns
    FROM moved
    WHERE is_large AND bytes_per_ns <= limit_bytes_per_ns
    GROUP BY run_id, rank
  )
SELECT
  moved.run_id,
  moved.rank,
  moved.kernel_id,
  moved.label,
  moved.bytes_per_ns / greatest($achievable * moved.limit_bytes_per_ns, achieved.bytes_per_ns) AS roofline,
  coalesce(moved.is_large AND roofline < $max_bandwidth, FALSE) AS matches,
  moved.limit_bytes_per_ns IS NOT NULL AS is_known,
  moved.device_name,
  0.01 AS min_share,
  {
    subject: 'elementwise operators',
    saving_limit: 'the time beyond what the bytes need at the achievable bandwidth',
    observation: 'Elementwise operators on large tensors stay far below the memory bandwidth and lose {lost}. The largest part is {culprit}{reached} of what is achievable ({detail}).',
    advice: 'Make tensors contiguous and of one memory layout, use vectorizable types, and fuse the operator with its neighbors (torch.compile, fused kernels).',
    evidence: 'op_work_summary',
    evidence_filter: 'family IN (''elementwise'', ''norm'', ''softmax'', ''copy'')'
  } AS words
FROM moved
LEFT JOIN achieved USING (run_id, rank)
