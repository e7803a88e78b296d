-- /// tw
-- kind     = "view"
-- name     = "op_limits"
-- version  = 1
-- summary  = "Work of operators that ran on the GPU, with its shapes, its main kernel and the peak rates that limit it."
-- requires = ["op_peaks@1", "kernels@1", "events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- event_id            = { type = "BIGINT", unit = "id", doc = "The operator; those without GPU activity have no row." }
-- name                = { type = "VARCHAR", doc = "Operator name." }
-- family              = { type = "VARCHAR", doc = "gemm, conv, attention, norm, softmax, elementwise, embedding, optimizer, copy or triton." }
-- shapes              = { type = "VARCHAR", null = true, doc = "Input shapes." }
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
-- kernel_name         = { type = "VARCHAR", null = true, doc = "Its name." }
-- start_ns            = { type = "BIGINT", unit = "ts", signed = true, doc = "Its start." }
-- end_ns              = { type = "BIGINT", unit = "ts", signed = true, doc = "Its end." }
-- gpu_union_ns        = { type = "BIGINT", unit = "ns", doc = "Time in which GPU activities of the operator ran; always positive." }
-- device_name         = { type = "VARCHAR", null = true, doc = "Name of the device, as recorded." }
-- limit_flop_per_ns   = { type = "DOUBLE", unit = "flop_per_ns", null = true, doc = "Peak rate for compute_dtype." }
-- limit_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Peak memory bandwidth." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  worked.run_id,
  worked.rank,
  worked.event_id,
  worked.name,
  worked.family,
  events.shapes::VARCHAR AS shapes,
  worked.m,
  worked.n,
  worked.k,
  worked.dtype,
  worked.compute_dtype,
  worked.dtype_known,
  worked.pass,
  worked.step,
  worked.model_flop,
  worked.hardware_flop,
  worked.bytes,
  worked.bound,
  worked.reason,
  worked.kernel_id,
  kernels.name AS kernel_name,
  kernels.ts_ns AS start_ns,
  kernels.ts_ns + kernels.dur_ns AS end_ns,
  worked.gpu_union_ns,
  worked.device_name,
  worked.limit_flop_per_ns,
  worked.limit_bytes_per_ns
FROM op_peaks AS worked
JOIN events USING (run_id, rank, event_id)
JOIN kernels
  ON kernels.run_id = worked.run_id AND kernels.rank = worked.rank AND kernels.event_id = worked.kernel_id
