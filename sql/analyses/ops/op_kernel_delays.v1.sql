-- /// tw
-- kind     = "analysis"
-- name     = "op_kernel_delays"
-- version  = 1
-- summary  = "Delay from the start of an operator to its first GPU activity, by operator and launched activities."
-- requires = ["events@1", "kernels@1", "runtime@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "name", "kernels"]
-- per      = "window"
-- order    = ["run_id", "rank", "-count", "-op_to_kernel_ns", "name", "kernels"]
--
-- [params]
-- with_memory = { type = "BOOLEAN", default = true, doc = "Count memcpy and memset as GPU activities; without them, operators that only copy have no row." }
--
-- [columns]
-- run_id                   = { type = "VARCHAR", doc = "The run." }
-- rank                     = { type = "INTEGER", doc = "The rank." }
-- name                     = { type = "VARCHAR", doc = "Name of the operator: the innermost enclosing the calls, on their thread. Empty if the trace gives none." }
-- kernels                  = { type = "VARCHAR", doc = "GPU activities launched by the operator itself, not by operators it called: names in launch order, joined with |; activities of one call are ordered by start." }
-- kernel_count             = { type = "BIGINT", unit = "count", doc = "Number of GPU activities per occurrence." }
-- count                    = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Occurrences: operators of that name that launched exactly these activities." }
-- kernel_sum_ns            = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of durations of all their GPU activities." }
-- op_to_kernel_ns          = { type = "BIGINT", unit = "ns", aggregate = "sum", signed = true, better = "lower", doc = "Total time from the start of the operator to the start of the first GPU activity in that order." }
-- launch_to_kernel_ns      = { type = "BIGINT", unit = "ns", aggregate = "sum", signed = true, better = "lower", doc = "Total time from the start of the call that launched that activity to its start, including time in the queue." }
-- mean_op_to_kernel_ns     = { type = "DOUBLE", unit = "ns", aggregate = "op_to_kernel_ns/count", signed = true, better = "lower", doc = "op_to_kernel_ns / count." }
-- mean_launch_to_kernel_ns = { type = "DOUBLE", unit = "ns", aggregate = "launch_to_kernel_ns/count", signed = true, better = "lower", doc = "launch_to_kernel_ns / count." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  launched AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.op_id,
      kernels.event_id,
      coalesce(kernels.name, '') AS name,
      runtime.ts_ns AS call_ns,
      kernels.ts_ns,
      kernels.dur_ns
    FROM kernels
    JOIN runtime
      ON runtime.run_id = kernels.run_id AND runtime.rank = kernels.rank AND runtime.event_id = kernels.runtime_id
    WHERE kernels.op_id IS NOT NULL AND ($with_memory OR kernels.kind <> 'memory')
  ),
  counted AS (
    SELECT
      run_id,
      rank,
      op_id,
      any_value(name) AS name,
      count(*) AS kernel_count,
      sum(dur_ns)::BIGINT AS kernel_sum_ns,
      min(call_ns) AS call_ns,
      min(ts_ns) AS first_ns
    FROM launched
    GROUP BY run_id, rank, op_id
  ),
  several AS (
    -- Sorting names takes longest, and most operators launch a single GPU activity: only the others need it.
    SELECT
      run_id,
      rank,
      op_id,
      string_agg(name, ' | ' ORDER BY call_ns, ts_ns, event_id) AS kernels,
      arg_min(ts_ns, (call_ns, ts_ns, event_id)) AS first_ns
    FROM launched
    SEMI JOIN (
      SELECT run_id, rank, op_id
      FROM counted
      WHERE kernel_count > 1
    ) AS busy
      ON busy.run_id = launched.run_id AND busy.rank = launched.rank AND busy.op_id = launched.op_id
    GROUP BY run_id, rank, op_id
  ),
  occurrence AS (
    SELECT
      counted.run_id,
      counted.rank,
      counted.op_id,
      coalesce(several.kernels, counted.name) AS kernels,
      counted.kernel_count,
      counted.kernel_sum_ns,
      counted.call_ns,
      coalesce(several.first_ns, counted.first_ns) AS first_ns
    FROM counted
    LEFT JOIN several USING (run_id, rank, op_id)
  ),
  delay AS (
    SELECT
      occurrence.run_id,
      occurrence.rank,
      coalesce(op.name, '') AS name,
      occurrence.kernels,
      occurrence.kernel_count,
      occurrence.kernel_sum_ns,
      occurrence.first_ns - op.ts_ns AS op_to_kernel_ns,
      occurrence.first_ns - occurrence.call_ns AS launch_to_kernel_ns
    FROM occurrence
    JOIN events AS op
      ON op.run_id = occurrence.run_id AND op.rank = occurrence.rank AND op.event_id = occurrence.op_id
  )
SELECT
  run_id,
  rank,
  name,
  kernels,
  max(kernel_count) AS kernel_count,
  count(*) AS count,
  sum(kernel_sum_ns)::BIGINT AS kernel_sum_ns,
  sum(op_to_kernel_ns)::BIGINT AS op_to_kernel_ns,
  sum(launch_to_kernel_ns)::BIGINT AS launch_to_kernel_ns,
  sum(op_to_kernel_ns) / count(*) AS mean_op_to_kernel_ns,
  sum(launch_to_kernel_ns) / count(*) AS mean_launch_to_kernel_ns
FROM delay
GROUP BY run_id, rank, name, kernels
