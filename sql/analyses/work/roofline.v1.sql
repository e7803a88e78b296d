-- /// tw
-- kind     = "analysis"
-- name     = "roofline"
-- version  = 1
-- like     = "roofline_base@1"
-- summary  = "Work of operators on the GPU by their main kernel, and how close each kernel comes to the limits of the device."
-- requires = ["op_limits@1", "work_coverage@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "kernel"]
-- per      = "window"
-- order    = ["run_id", "rank", "-gpu_union_ns", "kernel"]
--
-- [columns]
-- kernel              = { type = "VARCHAR", null = true, doc = "Name of the main kernel: the longest of an operator, without copies and reductions beside it. The operator's work counts for it." }
-- count = {}
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  {'kernel': kernel_name} AS keys,
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
