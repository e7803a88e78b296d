-- /// tw
-- kind     = "analysis"
-- name     = "gpu_utilization"
-- version  = 1
-- summary  = "How well each step uses the GPU: busy share, estimated SM efficiency and estimated occupancy."
-- requires = ["device_segments@1", "kernels@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank; its devices are combined." }
-- step          = { type = "BIGINT", unit = "id", null = true, doc = "Step number; null for the entire GPU window (first start to last end of GPU activities)." }
-- window_ns     = { type = "BIGINT", unit = "ns", doc = "The period of the step, or the GPU window." }
-- busy_ns       = { type = "BIGINT", unit = "ns", doc = "Time with at least one GPU activity." }
-- kernel_ns     = { type = "BIGINT", unit = "ns", doc = "Time attributed to kernels, without memcpy and memset. Where kernels overlap, the first to start counts, computation before communication." }
-- busy_share    = { type = "DOUBLE", unit = "ratio", better = "higher", doc = "busy_ns as a share of window_ns." }
-- sm_efficiency = { type = "DOUBLE", unit = "ratio", null = true, better = "higher", doc = "Estimated share of multiprocessors with work: mean over window_ns of blocks per multiprocessor, at most 1, of the kernel that runs, 0 without a kernel. A lower bound where kernels overlap. Formula: `Est. SM Efficiency` of the PyTorch profiler's TensorBoard plugin. Null if a kernel does not record a possible value." }
-- occupancy     = { type = "DOUBLE", unit = "ratio", null = true, better = "higher", doc = "Mean occupancy over kernel_ns, as estimated by the profiler. Null if a kernel does not record a possible value, or without kernels." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.step,
      segment.segment_ns,
      segment.kind <> 'idle' AS is_busy,
      coalesce(segment.cause = 'outside', FALSE) AS is_outside,
      coalesce(kernels.activity = 'kernel', FALSE) AS is_kernel,
      CASE WHEN isfinite(kernels.blocks_per_sm) AND kernels.blocks_per_sm >= 0 THEN least(kernels.blocks_per_sm, 1) END AS active,
      CASE WHEN kernels.occupancy BETWEEN 0 AND 1 THEN kernels.occupancy END AS occupancy
    FROM device_segments AS segment
    LEFT JOIN kernels
      ON kernels.run_id = segment.run_id AND kernels.rank = segment.rank AND kernels.event_id = segment.kernel_id
  ),
  scoped AS (
    SELECT run_id, rank, step, segment_ns, is_busy, is_kernel, active, occupancy
    FROM segment
    WHERE step IS NOT NULL
    UNION ALL
    SELECT run_id, rank, NULL, segment_ns, is_busy, is_kernel, active, occupancy
    FROM segment
    WHERE NOT is_outside
  ),
  summed AS (
    SELECT
      run_id,
      rank,
      step,
      sum(segment_ns)::BIGINT AS window_ns,
      coalesce(sum(segment_ns) FILTER (is_busy), 0)::BIGINT AS busy_ns,
      coalesce(sum(segment_ns) FILTER (is_kernel), 0)::BIGINT AS kernel_ns,
      coalesce(sum(segment_ns * active::DECIMAL(18, 6)) FILTER (is_kernel), 0) AS active_ns,
      coalesce(sum(segment_ns * occupancy::DECIMAL(18, 6)) FILTER (is_kernel), 0) AS occupied_ns,
      bool_and(active IS NOT NULL OR NOT is_kernel) AS has_active,
      bool_and(occupancy IS NOT NULL OR NOT is_kernel) AS has_occupancy
    FROM scoped
    GROUP BY run_id, rank, step
  )
SELECT
  run_id,
  rank,
  step,
  window_ns,
  busy_ns,
  kernel_ns,
  busy_ns / window_ns AS busy_share,
  CASE WHEN has_active THEN active_ns / window_ns END AS sm_efficiency,
  CASE WHEN has_occupancy AND kernel_ns > 0 THEN occupied_ns / kernel_ns END AS occupancy
FROM summed
WHERE window_ns > 0
