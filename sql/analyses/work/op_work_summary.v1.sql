-- /// tw
-- kind     = "analysis"
-- name     = "op_work_summary"
-- version  = 1
-- like     = "roofline_base@1"
-- summary  = "Work of operators on the GPU by name, input shapes, type and pass, and how close each comes to the limits of the device."
-- requires = ["op_limits@1", "work_coverage@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "name", "family", "shapes", "dtype", "pass"]
-- per      = "window"
-- order    = ["run_id", "rank", "-gpu_union_ns", "name", "family", "shapes", "dtype", "pass"]
--
-- [columns]
-- name                = { type = "VARCHAR", doc = "Operator name; only operators with a rule (`flop_rules`), without those inside another one." }
-- family              = { type = "VARCHAR", doc = "gemm, conv, attention, norm, softmax, elementwise, embedding, optimizer, copy or triton." }
-- shapes              = { type = "VARCHAR", null = true, doc = "Input shapes." }
-- dtype               = { type = "VARCHAR", null = true, doc = "Type of the first operand." }
-- pass                = { type = "VARCHAR", doc = "Training phase: forward, backward, recompute, optimizer, data or other." }
-- count = {}
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  {'name': name, 'family': family, 'shapes': shapes, 'dtype': dtype, 'pass': pass} AS keys,
  family,
  model_flop,
  hardware_flop,
  bytes,
  gpu_union_ns,
  bound,
  reason,
  compute_dtype,
  device_name,
  limit_flop_per_ns,
  limit_bytes_per_ns
FROM op_limits
