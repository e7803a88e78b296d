-- /// tw
-- kind     = "analysis"
-- name     = "name_summary"
-- version  = 1
-- summary  = "How often each operator, call and annotation ran on the host, and each kernel on the GPU, and how long: what two traces are compared by."
-- requires = ["events@1", "kernels@1"]
-- grain    = ["run_id", "rank", "step", "on_gpu", "category", "name"]
-- order    = ["run_id", "rank", "step", "on_gpu", "-sum_ns", "category", "name"]
--
-- [params]
-- by_step = { type = "BOOLEAN", default = false, doc = "Each profiler step for itself; else all that was recorded." }
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- step     = { type = "BIGINT", unit = "id", null = true, doc = "The profiler step: of a host row the one that holds its start, of a GPU row that of its launch; null outside of any, and where all are taken together." }
-- on_gpu   = { type = "BOOLEAN", doc = "GPU rows: kernels, copies and sets; else slices of host threads." }
-- category = { type = "VARCHAR", null = true, doc = "On the host the trace's category (cpu_op, cuda_runtime, user_annotation, python_function, …), of a GPU row its kind." }
-- name     = { type = "VARCHAR", null = true, doc = "The name in full." }
-- count    = { type = "BIGINT", unit = "count", fold = "sum", better = "lower", doc = "Rows of that name." }
-- sum_ns   = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Their lengths added up, also where they overlap or hold one another." }
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
