-- /// tw
-- kind     = "view"
-- name     = "op_peaks"
-- version  = 1
-- summary  = "Work of operators that ran on the GPU, with the peak rates of the device for its type."
-- requires = ["op_work@1", "device_specs@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- event_id            = { type = "BIGINT", unit = "id", doc = "The operator; those without GPU activity have no row." }
-- name                = { type = "VARCHAR", doc = "Operator name." }
-- family              = { type = "VARCHAR", doc = "gemm, conv, attention, norm, softmax, elementwise, embedding, optimizer, copy or triton." }
-- m                   = { type = "BIGINT", null = true, unit = "count", doc = "Rows of the result of a matrix product." }
-- n                   = { type = "BIGINT", null = true, unit = "count", doc = "Columns of the result." }
-- k                   = { type = "BIGINT", null = true, unit = "count", doc = "The inner dimension." }
-- dtype               = { type = "VARCHAR", null = true, doc = "Type of the first operand." }
-- compute_dtype       = { type = "VARCHAR", null = true, doc = "Type of the arithmetic whose peak applies; the faster one of fp32 and tf32 if neither can be shown." }
-- dtype_known         = { type = "BOOLEAN", doc = "False if the type, or the peak of the device for it, is not certain: the higher peak then applies." }
-- pass                = { type = "VARCHAR", doc = "Training phase." }
-- step                = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step that contains its start." }
-- model_flop          = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the model needs." }
-- hardware_flop       = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the hardware does." }
-- bytes               = { type = "BIGINT", null = true, unit = "bytes", doc = "Bytes read and written." }
-- bound               = { type = "VARCHAR", null = true, doc = "exact, upper or lower." }
-- reason              = { type = "VARCHAR", null = true, doc = "Why the work is not known exactly." }
-- kernel_id           = { type = "BIGINT", unit = "id", doc = "The main kernel." }
-- gpu_union_ns        = { type = "BIGINT", unit = "ns", doc = "Time in which GPU activities of the operator ran; always positive." }
-- device_name         = { type = "VARCHAR", null = true, doc = "Name of the device, as recorded." }
-- limit_flop_per_ns   = { type = "DOUBLE", unit = "flop_per_ns", null = true, doc = "Peak rate for compute_dtype." }
-- limit_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Peak memory bandwidth." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device AS (
    SELECT named.device_name, min(spec.rule_id) AS rule_id
    FROM (SELECT DISTINCT device_name FROM op_work) AS named
    JOIN device_specs AS spec ON regexp_matches(named.device_name, spec.pattern)
    GROUP BY named.device_name
  ),
  peak AS (
    SELECT device.device_name, spec.dtype, spec.flop_per_ns, spec.memory_bytes_per_ns, spec.rate_known
    FROM device
    JOIN device_specs AS spec USING (rule_id)
  ),
  memory AS (
    SELECT
      device_name,
      max(peak.memory_bytes_per_ns) AS limit_bytes_per_ns,
      bool_or(dtype = 'tf32') AS has_tf32
    FROM peak
    GROUP BY device_name
  ),
  worked AS (
    SELECT
      op_work.run_id,
      op_work.rank,
      op_work.event_id,
      op_work.name,
      op_work.family,
      op_work.m,
      op_work.n,
      op_work.k,
      op_work.dtype,
      op_work.dtype_known,
      op_work.pass,
      op_work.step,
      op_work.model_flop,
      op_work.hardware_flop,
      op_work.read_bytes + op_work.write_bytes AS bytes,
      op_work.bound,
      op_work.reason,
      op_work.main_kernel_id,
      op_work.gpu_union_ns,
      op_work.device_name,
      memory.limit_bytes_per_ns,
      coalesce(memory.has_tf32, TRUE) AS has_tf32,
      CASE
        WHEN op_work.compute_dtype = 'fp32' AND NOT op_work.dtype_known AND memory.has_tf32 THEN 'tf32'
        ELSE op_work.compute_dtype
      END AS compute_dtype
    FROM op_work
    LEFT JOIN memory USING (device_name)
    WHERE op_work.gpu_union_ns > 0
  )
SELECT
  worked.run_id,
  worked.rank,
  worked.event_id,
  worked.name,
  worked.family,
  worked.m,
  worked.n,
  worked.k,
  worked.dtype,
  worked.compute_dtype,
  (worked.dtype_known OR NOT worked.has_tf32) AND coalesce(peak.rate_known, TRUE) AS dtype_known,
  worked.pass,
  worked.step,
  worked.model_flop,
  worked.hardware_flop,
  worked.bytes,
  worked.bound,
  worked.reason,
  worked.main_kernel_id AS kernel_id,
  worked.gpu_union_ns,
  worked.device_name,
  peak.flop_per_ns AS limit_flop_per_ns,
  worked.limit_bytes_per_ns
FROM worked
LEFT JOIN peak ON peak.device_name = worked.device_name AND peak.dtype = worked.compute_dtype
