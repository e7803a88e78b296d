-- /// tw
-- kind     = "analysis"
-- like     = "slow_operators_base@1"
-- name     = "low_roofline_hot_ops"
-- version  = 1
-- summary  = "Detects operators that take much time and come close neither to the peak rate nor to the memory bandwidth of the device."
-- requires = ["analyzed_segments@1", "op_limits@1"]
-- needs    = ["gpu", "shapes"]
-- confidence = "low"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.4 }
-- max_roofline   = { type = "DOUBLE", unit = "ratio", default = 0.3, min = 0, max = 1, doc = "Operators that come closer to the limits of the device than this are not counted." }
-- min_op_share   = { type = "DOUBLE", unit = "ratio", default = 0.03, min = 0, doc = "Lowest share of the analyzed time that all operators of the same name and shapes take." }
-- min_gpu_ns     = { type = "BIGINT", unit = "ns", default = 20000, min = 0, doc = "Shorter operators are not counted: they are too short to reach any limit." }
--
-- [columns]
-- subject   = { doc = "Always: operators. Ranks without input shapes have no row; on a device without known peaks (`device_specs`) it could not be checked." }
-- share     = { doc = "Time that such operators lose against the limits of the device, as a share of analyzed_ns." }
-- count     = { doc = "Number of such operators." }
-- culprit   = { doc = "Name and shapes of the operator that loses most." }
-- event_id  = { doc = "The main kernel of the longest one." }
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
  -- A lower bound of the work gives no roofline.
  roofline < $max_roofline
  AND bound <> 'lower'
  AND gpu_union_ns >= $min_gpu_ns
  AND (hardware_flop = 0 OR limit_flop_per_ns IS NOT NULL)
  AND bytes IS NOT NULL AS matches,
  limit_bytes_per_ns IS NOT NULL AS is_known,
  device_name,
  $min_op_share AS min_share,
  {
    subject: 'operators',
    saving_limit: 'the time beyond what the FLOP or the bytes need at the peak rates, which no kernel reaches fully',
    observation: 'Operators that reach less than ' || round(100 * $max_roofline)::INTEGER || ' % of the peak rate and of the memory bandwidth lose {lost}. The largest part is {culprit}{reached} ({detail}).',
    advice: 'Look for a faster implementation: a fused kernel, another memory layout, larger batches, torch.compile.',
    evidence: 'op_work_summary',
    evidence_filter: 'bound_by = ''neither'''
  } AS words
FROM op_limits
