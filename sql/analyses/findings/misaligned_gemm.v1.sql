-- /// tw
-- kind     = "analysis"
-- like     = "slow_operators_base@1"
-- name     = "misaligned_gemm"
-- version  = 1
-- summary  = "Detects matrix products whose sizes are not multiples of 8, so that they run in slow unaligned kernels."
-- requires = ["analyzed_segments@1", "op_limits@1"]
-- needs    = ["gpu", "shapes"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.03 }
-- critical_share = { default = 0.15 }
-- max_roofline   = { type = "DOUBLE", unit = "ratio", default = 0.5, min = 0, max = 1, doc = "Products that come closer to the limits of the device than this are not counted." }
--
-- [columns]
-- subject   = { doc = "Always: matrix products. Ranks without input shapes have no row; on a device without known peaks (`device_specs`) it could not be checked." }
-- share     = { doc = "Time that such products lose against the limits of the device, as a share of analyzed_ns." }
-- count     = { doc = "Number of such products." }
-- culprit   = { doc = "Name and shapes of the product that loses most." }
-- event_id  = { doc = "The kernel of the longest one." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  kernel_id,
  name || ' ' || shapes AS label,
  coalesce(greatest(hardware_flop / limit_flop_per_ns, bytes / limit_bytes_per_ns), 0) / gpu_union_ns AS roofline,
  roofline < $max_roofline
  AND family = 'gemm'
  AND (m % 8 <> 0 OR n % 8 <> 0 OR k % 8 <> 0)
  AND regexp_matches(kernel_name, 'align1(\D|$)') AS matches,
  limit_bytes_per_ns IS NOT NULL AS is_known,
  device_name,
  0 AS min_share,
  {
    subject: 'matrix products',
    saving_limit: 'the time beyond what the FLOP or the bytes need at the peak rates',
    observation: 'Matrix products with sizes that are not multiples of 8 run in unaligned kernels and lose {lost}. The largest part is {culprit} ({detail}).',
    advice: 'Pad these sizes to multiples of 8 (better 64): hidden sizes, vocabulary, batch.',
    evidence: 'op_work_summary',
    evidence_filter: 'roofline < ' || $max_roofline
  } AS words
FROM op_limits
