-- /// tw
-- kind     = "view"
-- name     = "kernel_calls"
-- version  = 1
-- summary  = "Calls of each computation kernel with the same operator, shapes and number of blocks within the analyzed interval of a rank."
-- requires = ["kernels@1", "analyzed_intervals@1"]
-- grain    = ["run_id", "rank", "name", "op_sig", "blocks"]
-- order    = ["run_id", "rank", "name", "op_sig", "blocks"]
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- name    = { type = "VARCHAR", doc = "The kernel, by short name; unknown without any." }
-- op_sig  = { type = "VARCHAR", null = true, doc = "Operator with the shapes and types of its inputs." }
-- blocks  = { type = "BIGINT", null = true, unit = "count", doc = "Blocks of the grid: the size of the call where shapes are not recorded." }
-- calls   = { type = "DOUBLE", unit = "count", doc = "Calls per complete step; in total without any." }
-- call_ns = { type = "DOUBLE", unit = "ns", doc = "Mean duration of a call; kernels of which no call has a duration have no row." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  kernels.run_id,
  kernels.rank,
  coalesce(kernels.short_name, kernels.name, 'unknown') AS name,
  kernels.op_sig,
  kernels.grid_x * kernels.grid_y * kernels.grid_z AS blocks,
  count(*) / greatest(any_value(span.steps), 1) AS calls,
  sum(kernels.dur_ns) / count(*) AS call_ns
FROM kernels
JOIN analyzed_intervals AS span USING (run_id, rank)
WHERE kernels.ts_ns >= span.start_ns AND kernels.ts_ns < span.end_ns AND kernels.kind = 'computation'
GROUP BY
  kernels.run_id,
  kernels.rank,
  coalesce(kernels.short_name, kernels.name, 'unknown'),
  kernels.op_sig,
  kernels.grid_x * kernels.grid_y * kernels.grid_z
HAVING sum(kernels.dur_ns) > 0
