-- /// tw
-- kind     = "analysis"
-- name     = "host_account"
-- version  = 1
-- summary  = "Breakdown of each step's period by what the training thread runs: data loading, operators, calls, Python, annotations, waiting."
-- requires = ["host_segments@1", "steps@1"]
-- grain    = ["run_id", "rank", "step", "category", "name"]
-- order    = ["run_id", "rank", "step", "-self_ns", "category", "name"]
--
-- [params]
-- entire_trace = { type = "BOOLEAN", default = false, doc = "Break down the profiling window instead of steps." }
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- step     = { type = "BIGINT", unit = "id", null = true, doc = "The step, over its period; null with entire_trace and on ranks without steps, over all time of the thread." }
-- category = { type = "VARCHAR", doc = "As in `host_segments`: data_loading, operator, call, python, other_slice, annotation, waiting (under an open collective of the host: gloo, MPI) or unrecorded, for example Python code that was not recorded, or waiting for another thread." }
-- name     = { type = "VARCHAR", null = true, doc = "Name of the innermost slice, without object addresses; of data loading the outermost, of waiting the collective. Null if unrecorded or without a name." }
-- count    = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Slices with self time in the step." }
-- self_ns  = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time of the thread in it; the rows of a step sum to its period." }
-- share    = { type = "DOUBLE", unit = "ratio", doc = "self_ns as a share of the step's period, or of the window." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  has_steps AS (
    SELECT DISTINCT run_id, rank
    FROM steps
    WHERE period_ns > 0 AND NOT $entire_trace
  ),
  slice AS (
    SELECT
      host.run_id,
      host.rank,
      CASE WHEN has_steps.rank IS NOT NULL THEN host.step END AS account_step,
      host.category,
      host.slice_id,
      any_value(host.name) AS name,
      sum(host.segment_ns) AS self_ns
    FROM host_segments AS host
    LEFT JOIN has_steps USING (run_id, rank)
    WHERE host.step IS NOT NULL OR has_steps.rank IS NULL
    GROUP BY host.run_id, host.rank, account_step, host.category, host.slice_id
  ),
  summed AS (
    SELECT run_id, rank, account_step AS step, category, name, count(slice_id) AS count, sum(self_ns)::BIGINT AS self_ns
    FROM slice
    GROUP BY run_id, rank, account_step, category, name
  )
SELECT
  run_id,
  rank,
  step,
  category,
  name,
  count,
  self_ns,
  self_ns / (sum(self_ns) OVER (PARTITION BY run_id, rank, step))::BIGINT AS share
FROM summed
