-- /// tw
-- kind     = "view"
-- name     = "kernel_calls"
-- version  = 1
-- summary  = "Calls of each computation kernel with the same operator and shapes within the analyzed interval of a rank."
-- requires = ["kernels@1", "analyzed_intervals@1"]
-- grain    = ["run_id", "rank", "name", "op_sig"]
-- order    = ["run_id", "rank", "name", "op_sig"]
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- name    = { type = "VARCHAR", null = true, doc = "The kernel, by short name." }
-- op_sig  = { type = "VARCHAR", null = true, doc = "Operator with the shapes and types of its inputs." }
-- calls   = { type = "DOUBLE", unit = "count", doc = "Calls per complete step; in total without any." }
-- call_ns = { type = "DOUBLE", unit = "ns", doc = "Mean duration of a call." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  kernels.run_id,
  kernels.rank,
  coalesce(kernels.short_name, kernels.name) AS name,
  kernels.op_sig,
  count(*) / greatest(any_value(span.steps), 1) AS calls,
  sum(kernels.dur_ns) / count(*) AS call_ns
FROM kernels
JOIN analyzed_intervals AS span
  ON span.run_id = kernels.run_id
  AND span.rank = kernels.rank
  AND kernels.ts_ns >= span.start_ns
  AND kernels.ts_ns < span.end_ns
WHERE kernels.kind = 'computation'
GROUP BY kernels.run_id, kernels.rank, coalesce(kernels.short_name, kernels.name), kernels.op_sig
