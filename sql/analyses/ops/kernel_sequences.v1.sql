-- /// tw
-- kind     = "analysis"
-- name     = "kernel_sequences"
-- version  = 1
-- summary  = "Sequences of GPU activities that operators launch, with count, GPU time and operator time."
-- requires = ["events@1", "kernel_operators@1", "kernels@1", "runtime@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "name", "device", "stream", "kernels"]
-- per      = "window"
-- order    = ["run_id", "rank", "-count", "-kernel_sum_ns", "name", "device", "stream", "kernels"]
--
-- [params]
-- operator    = { type = "VARCHAR", doc = "Operators whose name contains this text; the outermost of nested ones. Default: operators not enclosed by another." }
-- min_kernels = { type = "BIGINT", default = 3, min = 1, unit = "count", doc = "Minimum length; shorter sequences are left out." }
-- by_stream   = { type = "BOOLEAN", default = false, doc = "One sequence per device and stream instead of one across all." }
-- with_memory = { type = "BOOLEAN", default = true, doc = "Include memcpy and memset in sequences." }
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- name          = { type = "VARCHAR", doc = "Operator name; empty if the trace gives none." }
-- device        = { type = "BIGINT", unit = "id", signed = true, null = true, doc = "The device, -1 if unknown; null without by_stream." }
-- stream        = { type = "BIGINT", unit = "id", signed = true, null = true, doc = "The stream, -1 if unknown; null without by_stream." }
-- kernels       = { type = "VARCHAR", doc = "All GPU activities launched by the operator and the operators it called: names in launch order, joined with |; activities of one call are ordered by start." }
-- kernel_count  = { type = "BIGINT", unit = "count", doc = "Number of GPU activities in the sequence." }
-- count         = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "How many times an operator of that name launched exactly this sequence." }
-- kernel_sum_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of GPU activity durations (overlaps counted multiple times)." }
-- op_sum_ns     = { type = "BIGINT", unit = "ns", better = "lower", doc = "Sum of the host durations of these operators; with by_stream, counted once per stream." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  holder AS (
    SELECT run_id, rank, kernel_id, arg_min(op_id, level) AS op_id
    FROM kernel_operators
    WHERE $operator IS NULL OR contains(name, $operator)
    GROUP BY run_id, rank, kernel_id
  ),
  launched AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      holder.op_id,
      CASE WHEN $by_stream THEN kernels.device END AS device,
      CASE WHEN $by_stream THEN kernels.stream END AS stream,
      kernels.event_id,
      coalesce(kernels.name, '') AS name,
      runtime.ts_ns AS call_ns,
      kernels.ts_ns,
      kernels.dur_ns
    FROM kernels
    JOIN holder
      ON holder.run_id = kernels.run_id AND holder.rank = kernels.rank AND holder.kernel_id = kernels.event_id
    JOIN runtime
      ON runtime.run_id = kernels.run_id AND runtime.rank = kernels.rank AND runtime.event_id = kernels.runtime_id
    WHERE $with_memory OR kernels.kind <> 'memory'
  ),
  counted AS (
    SELECT
      run_id,
      rank,
      op_id,
      device,
      stream,
      event_id,
      name,
      call_ns,
      ts_ns,
      dur_ns,
      count(*) OVER (PARTITION BY run_id, rank, op_id, device, stream) AS kernel_count
    FROM launched
  ),
  occurrence AS (
    SELECT
      run_id,
      rank,
      op_id,
      device,
      stream,
      string_agg(name, ' | ' ORDER BY call_ns, ts_ns, event_id) AS kernels,
      count(*) AS kernel_count,
      sum(dur_ns)::BIGINT AS kernel_sum_ns
    FROM counted
    -- Filter before sorting names, which takes longest.
    WHERE kernel_count >= $min_kernels
    GROUP BY run_id, rank, op_id, device, stream
  )
SELECT
  occurrence.run_id,
  occurrence.rank,
  coalesce(op.name, '') AS name,
  occurrence.device,
  occurrence.stream,
  occurrence.kernels,
  max(occurrence.kernel_count) AS kernel_count,
  count(*) AS count,
  sum(occurrence.kernel_sum_ns)::BIGINT AS kernel_sum_ns,
  sum(op.dur_ns)::BIGINT AS op_sum_ns
FROM occurrence
JOIN events AS op
  ON op.run_id = occurrence.run_id AND op.rank = occurrence.rank AND op.event_id = occurrence.op_id
GROUP BY
  occurrence.run_id,
  occurrence.rank,
  coalesce(op.name, ''),
  occurrence.device,
  occurrence.stream,
  occurrence.kernels
