-- /// tw
-- kind     = "analysis"
-- like     = "slow_operators_base@1"
-- name     = "low_roofline_hot_ops"
-- version  = 1
-- summary  = "Detects operators and kernels that take much time and use little of the device: far from its peak rate and memory bandwidth, or with fewer blocks than multiprocessors."
-- requires = ["analyzed_segments@1", "op_limits@1", "kernels@1", "ranks@1"]
-- needs    = ["gpu"]
-- confidence = "low"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.4 }
-- max_roofline   = { type = "DOUBLE", unit = "ratio", default = 0.3, min = 0, max = 1, doc = "Operators that come closer to the limits of the device than this are not counted." }
-- max_matmul     = { type = "DOUBLE", unit = "ratio", default = 0.5, min = 0, max = 1, doc = "The same for matrix products and convolutions, which reach more." }
-- max_blocks     = { type = "DOUBLE", unit = "ratio", default = 0.75, min = 0, max = 1, doc = "Kernels with more blocks per multiprocessor are not counted." }
-- min_op_share   = { type = "DOUBLE", unit = "ratio", default = 0.03, min = 0, doc = "Lowest share of the analyzed time that all operators of the same name and shapes take." }
-- min_gpu_ns     = { type = "BIGINT", unit = "ns", default = 20000, min = 0, doc = "Shorter operators are not counted: they are too short to reach any limit." }
--
-- [columns]
-- subject   = { doc = "Always: operators. Elementwise operators are not counted: see `slow_elementwise`. Kernels of operators without known work count by their blocks. On a device of which neither the peaks (`device_specs`) nor the number of multiprocessors is known, it could not be checked." }
-- share     = { doc = "Time that such operators lose against the limits of the device, as a share of analyzed_ns." }
-- count     = { doc = "Number of such operators." }
-- culprit   = { doc = "Name and shapes of the operator that loses most." }
-- event_id  = { doc = "The main kernel of the longest one." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  slow AS (
    SELECT
      run_id,
      rank,
      kernel_id,
      name || ' ' || shapes AS label,
      coalesce(greatest(hardware_flop / limit_flop_per_ns, bytes / limit_bytes_per_ns), 0) / gpu_union_ns AS roofline,
      -- A lower bound of the work gives no roofline.
      roofline < CASE WHEN family IN ('gemm', 'conv') THEN $max_matmul ELSE $max_roofline END
      AND family NOT IN ('elementwise', 'norm', 'softmax', 'copy')
      AND bound <> 'lower'
      AND gpu_union_ns >= $min_gpu_ns
      AND (hardware_flop = 0 OR limit_flop_per_ns IS NOT NULL)
      AND bytes IS NOT NULL AS matches,
      limit_bytes_per_ns IS NOT NULL AS is_known,
      device_name
    FROM op_limits
  ),
  device AS (
    SELECT run_id, rank, TRY_CAST(header ->> '$.deviceProperties[0].numSms' AS BIGINT) AS multiprocessors
    FROM ranks
  ),
  small AS (
    -- At most one multiprocessor per block works.
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id AS kernel_id,
      kernels.grid_x * kernels.grid_y * kernels.grid_z AS blocks,
      coalesce(kernels.short_name, kernels.name)[:80] || ' (' || blocks || ' blocks on ' || device.multiprocessors || ' multiprocessors)' AS label,
      blocks / device.multiprocessors AS roofline,
      roofline < $max_blocks AND kernels.dur_ns >= $min_gpu_ns AS matches,
      TRUE AS is_known,
      NULL::VARCHAR AS device_name
    FROM kernels
    JOIN device ON device.run_id = kernels.run_id AND device.rank = kernels.rank AND device.multiprocessors > 0
    ANTI JOIN slow
      ON slow.run_id = kernels.run_id AND slow.rank = kernels.rank AND slow.kernel_id = kernels.event_id AND slow.is_known
    WHERE kernels.kind = 'computation' AND blocks > 0
  )
SELECT
  run_id,
  rank,
  kernel_id,
  label,
  roofline,
  matches,
  is_known,
  device_name,
  $min_op_share AS min_share,
  {
    subject: 'operators',
    saving_limit: 'the time beyond what the FLOP or the bytes need at the peak rates, which no kernel reaches fully, or beyond what the blocks would need on all multiprocessors',
    observation: 'Operators that use little of the device lose {lost}: they reach less than ' || round(100 * $max_roofline)::INTEGER || ' % (matrix products ' || round(100 * $max_matmul)::INTEGER || ' %) of the peak rate and of the memory bandwidth, or have fewer blocks than the device has multiprocessors. The largest part is {culprit}{reached} ({detail}).',
    advice: 'Look for a faster implementation: a fused kernel, another memory layout, larger batches, torch.compile.',
    evidence: 'op_work_summary',
    evidence_filter: 'bound_by = ''neither'''
  } AS words
FROM (
  SELECT run_id, rank, kernel_id, label, roofline, matches, is_known, device_name
  FROM slow
  UNION ALL
  SELECT run_id, rank, kernel_id, label, roofline, matches, is_known, device_name
  FROM small
)
