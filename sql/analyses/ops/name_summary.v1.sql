-- /// tw
-- kind     = "analysis"
-- name     = "name_summary"
-- version  = 1
-- summary  = "Count and total time of each operator, host call and annotation, and of each GPU kernel; used to compare two traces."
-- requires = ["events@1", "kernels@1"]
-- grain    = ["run_id", "rank", "step", "on_gpu", "category", "name"]
-- order    = ["run_id", "rank", "step", "on_gpu", "-sum_ns", "category", "name"]
--
-- [params]
-- by_step = { type = "BOOLEAN", default = false, doc = "Break down by profiler step; otherwise over the entire trace." }
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- step     = { type = "BIGINT", unit = "id", null = true, doc = "The profiler step: for host slices the one that contains the start, for GPU activities that of the launch; null outside steps and without by_step." }
-- on_gpu   = { type = "BOOLEAN", doc = "True for GPU activities (kernel, memcpy, memset); false for slices on host threads." }
-- category = { type = "VARCHAR", null = true, doc = "On the host the trace's category (cpu_op, cuda_runtime, user_annotation, python_function, …); for GPU activities the kind." }
-- name     = { type = "VARCHAR", null = true, doc = "Full name." }
-- count    = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Number of slices or GPU activities with this name." }
-- sum_ns   = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of durations (overlapping and nested time counted multiple times)." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  slice AS (
    SELECT run_id, rank, step, FALSE AS on_gpu, category, name, dur_ns
    FROM events
    WHERE depth IS NOT NULL
    UNION ALL
    SELECT run_id, rank, step, TRUE AS on_gpu, kind AS category, name, dur_ns
    FROM kernels
  ),
  stepped AS (
    SELECT run_id, rank, CASE WHEN $by_step THEN step END AS step, on_gpu, category, name, dur_ns
    FROM slice
  )
SELECT
  run_id,
  rank,
  step,
  on_gpu,
  category,
  name,
  count(*) AS count,
  sum(dur_ns)::BIGINT AS sum_ns
FROM stepped
GROUP BY run_id, rank, step, on_gpu, category, name
