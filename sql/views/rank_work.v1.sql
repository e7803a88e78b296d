-- /// tw
-- kind     = "view"
-- name     = "rank_work"
-- version  = 1
-- summary  = "FLOP of each rank in its complete steps, or in its GPU window if there are none, and the peak rate of its device."
-- requires = ["work_coverage@1", "op_peaks@1", "steps@1", "kernels@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id            = { type = "VARCHAR", doc = "The run." }
-- rank              = { type = "INTEGER", doc = "The rank; ranks without GPU activity have no row." }
-- steps             = { type = "BIGINT", unit = "count", doc = "Number of complete steps; 0 if the GPU window is used." }
-- period_ns         = { type = "BIGINT", unit = "ns", doc = "Sum of their periods, or the GPU window." }
-- model_flop        = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the model needs, without recomputation." }
-- hardware_flop     = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the hardware does." }
-- covered_ns        = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of computation in operators of known FLOP." }
-- computation_ns    = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of all computation." }
-- peak_dtype        = { type = "VARCHAR", null = true, doc = "Type of the arithmetic of most FLOP of the rank." }
-- device_name       = { type = "VARCHAR", null = true, doc = "Name of the device, as recorded." }
-- limit_flop_per_ns = { type = "DOUBLE", null = true, unit = "flop_per_ns", doc = "Peak rate of the device for that type." }
-- dtype_known       = { type = "BOOLEAN", null = true, doc = "False if the type or its peak is not certain." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  by_dtype AS (
    SELECT
      run_id,
      rank,
      compute_dtype,
      sum(hardware_flop) AS flop,
      min(device_name) AS device_name,
      max(limit_flop_per_ns) AS limit_flop_per_ns,
      bool_and(dtype_known) AS dtype_known
    FROM op_peaks
    WHERE hardware_flop > 0
    GROUP BY run_id, rank, compute_dtype
  ),
  peak AS (
    SELECT
      run_id,
      rank,
      arg_max(compute_dtype, (flop, compute_dtype)) AS peak_dtype,
      min(device_name) AS device_name,
      arg_max_null(limit_flop_per_ns, (flop, compute_dtype)) AS limit_flop_per_ns,
      arg_max(dtype_known, (flop, compute_dtype)) AS dtype_known
    FROM by_dtype
    GROUP BY run_id, rank
  ),
  complete AS (
    SELECT run_id, rank, step, period_ns
    FROM steps
    SEMI JOIN kernels USING (run_id, rank)
    WHERE NOT partial AND period_ns > 0
  ),
  span AS (
    SELECT run_id, rank, step, period_ns
    FROM complete
    UNION ALL
    SELECT run_id, rank, NULL::BIGINT, (max(ts_ns + dur_ns) - min(ts_ns))::BIGINT
    FROM kernels
    ANTI JOIN complete USING (run_id, rank)
    GROUP BY run_id, rank
  ),
  worked AS (
    SELECT
      span.run_id,
      span.rank,
      count(span.step) AS steps,
      sum(span.period_ns)::BIGINT AS period_ns,
      sum(coverage.model_flop)::BIGINT AS model_flop,
      sum(coverage.hardware_flop)::BIGINT AS hardware_flop,
      coalesce(sum(coverage.covered_ns), 0)::BIGINT AS covered_ns,
      coalesce(sum(coverage.computation_ns), 0)::BIGINT AS computation_ns
    FROM span
    LEFT JOIN work_coverage AS coverage
      ON coverage.run_id = span.run_id AND coverage.rank = span.rank AND coverage.step IS NOT DISTINCT FROM span.step
    GROUP BY span.run_id, span.rank
  )
SELECT
  worked.run_id,
  worked.rank,
  worked.steps,
  worked.period_ns,
  worked.model_flop,
  worked.hardware_flop,
  worked.covered_ns,
  worked.computation_ns,
  peak.peak_dtype,
  peak.device_name,
  peak.limit_flop_per_ns,
  peak.dtype_known
FROM worked
LEFT JOIN peak USING (run_id, rank)
