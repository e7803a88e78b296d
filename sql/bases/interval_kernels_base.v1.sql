-- /// tw
-- summary  = "Contribution of each kernel to intervals of each rank, with its count, by operator and module path."
-- requires = ["kernels@1", "correlations@1", "events@1", "kernel_work@1"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank; its devices are combined." }
-- kind         = { type = "VARCHAR", doc = "computation, communication, memory (memcpy and memset) or other." }
-- name         = { type = "VARCHAR", null = true, doc = "Full kernel name." }
-- pass         = { type = "VARCHAR", doc = "forward, backward, recompute, optimizer, data or other." }
-- op           = { type = "VARCHAR", null = true, doc = "The innermost operator enclosing its launch." }
-- op_sig       = { type = "VARCHAR", null = true, doc = "That operator with the shapes and types of its inputs." }
-- path_sig     = { type = "VARCHAR", null = true, doc = "Modules and operators enclosing the launch, outermost first." }
-- is_graph     = { type = "BOOLEAN", doc = "True if it was replayed by a graph launch." }
-- module_path  = { type = "VARCHAR", doc = "Its module, as in `kernel_work`; (communication), (optimizer), (gradient accumulation) or (outside any module)." }
-- family       = { type = "VARCHAR", null = true, doc = "Family of the operator in `op_work` that encloses its launch; null without one, and for communication." }
-- work_unit    = { type = "VARCHAR", null = true, doc = "What the work of that operator is counted in, flop or bytes; null if it is not known." }
-- count        = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Number of its GPU activities that start in the interval; 0 if only the remainder of one extends into it." }
-- sum_ns       = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of the full durations of the GPU activities that start in the interval, regardless of overlap." }
-- exclusive_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time of the interval attributed to it: if several activities run, computation comes before communication, memory and other, and within a kind the one that started first." }
-- work         = { type = "DECIMAL(38,0)", null = true, doc = "FLOP or bytes of the operators whose main kernel starts in the interval; null without work_unit." }
-- ///
-- An analysis returns, for each GPU activity and interval, run_id, rank, keys (a STRUCT of the columns that name the
-- interval), kernel_id, starts (1 if it starts there), sum_ns (its duration if so) and exclusive_ns. It may return
-- several rows, which are summed.
SELECT
  owned.run_id,
  owned.rank,
  unnest(owned.keys),
  kernels.kind,
  kernels.name,
  kernels.pass,
  op.name AS op,
  kernels.op_sig,
  kernels.path_sig,
  coalesce(correlations.is_graph, FALSE) AS is_graph,
  kernel_work.module_path,
  kernel_work.family,
  kernel_work.work_unit,
  sum(owned.starts)::BIGINT AS count,
  sum(owned.sum_ns)::BIGINT AS sum_ns,
  sum(owned.exclusive_ns)::BIGINT AS exclusive_ns,
  sum(owned.starts * kernel_work.work::DECIMAL(38, 0))::DECIMAL(38, 0) AS work
FROM (
  -- Aggregate by GPU activity first: names and signatures are long.
  SELECT
    run_id,
    rank,
    keys,
    kernel_id,
    sum(starts)::BIGINT AS starts,
    sum(sum_ns)::BIGINT AS sum_ns,
    sum(exclusive_ns)::BIGINT AS exclusive_ns
  FROM base_input
  GROUP BY run_id, rank, keys, kernel_id
) AS owned
JOIN kernels
  ON kernels.run_id = owned.run_id AND kernels.rank = owned.rank AND kernels.event_id = owned.kernel_id
JOIN kernel_work
  ON kernel_work.run_id = kernels.run_id AND kernel_work.rank = kernels.rank AND kernel_work.event_id = kernels.event_id
LEFT JOIN correlations
  ON correlations.run_id = kernels.run_id
  AND correlations.rank = kernels.rank
  AND correlations.kernel_id = kernels.event_id
LEFT JOIN events AS op
  ON op.run_id = kernels.run_id
  AND op.rank = kernels.rank
  AND op.event_id = kernels.op_id
  AND op.category = 'cpu_op'
GROUP BY
  owned.run_id,
  owned.rank,
  owned.keys,
  kernels.kind,
  kernels.name,
  kernels.pass,
  op.name,
  kernels.op_sig,
  kernels.path_sig,
  coalesce(correlations.is_graph, FALSE),
  kernel_work.module_path,
  kernel_work.family,
  kernel_work.work_unit
