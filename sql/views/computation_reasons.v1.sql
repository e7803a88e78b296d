-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "computation_reasons"
-- version  = 1
-- summary  = "Why the computation of a rank takes longer than that of the median rank: a slower GPU, more work, or one kernel."
-- requires = ["kernel_calls@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank; only ranks whose kernels take longer in total than those of the median rank: of an even number of ranks, the faster of the two in the middle." }
-- reason      = { type = "VARCHAR", null = true, doc = "more_work: at least half of the difference is calls that the median rank does not make, or makes with other shapes or grids, less those that this rank does not make. one_kernel: without the kernel with most of the rest, by name, the same calls take less than half as much longer. slower_gpu: kernels with more than two thirds of the time of the same calls take longer per call, each at least half as much as all together. Null if it is none of these." }
-- kernel_name = { type = "VARCHAR", null = true, doc = "The kernel of one_kernel; null for other reasons." }
-- percent     = { type = "BIGINT", doc = "more_work: what these calls take more, in percent of the kernels of the median rank; one_kernel: how much longer the calls of that kernel take; else, how much longer the same calls take." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  total AS (
    SELECT run_id, rank, sum(calls * call_ns) AS total_ns
    FROM kernel_calls
    GROUP BY run_id, rank
  ),
  median AS (
    SELECT run_id, rank, total_ns
    FROM total
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY total_ns, rank) = (count(*) OVER (PARTITION BY run_id) + 1) // 2
  ),
  difference AS (
    SELECT
      total.run_id,
      total.rank,
      own.name,
      any_value(total.total_ns - median.total_ns) AS total_ns,
      any_value(median.total_ns) AS median_ns,
      coalesce(sum(same.calls * same.call_ns), 0) AS same_ns,
      coalesce(sum(same.calls * (own.call_ns - same.call_ns)), 0) AS slower_ns
    FROM total
    JOIN median ON median.run_id = total.run_id AND median.total_ns < total.total_ns
    JOIN kernel_calls AS own ON own.run_id = total.run_id AND own.rank = total.rank
    LEFT JOIN kernel_calls AS same
      ON same.run_id = median.run_id
      AND same.rank = median.rank
      AND same.name = own.name
      AND same.op_sig IS NOT DISTINCT FROM own.op_sig
      AND same.blocks IS NOT DISTINCT FROM own.blocks
    GROUP BY total.run_id, total.rank, own.name
  ),
  summed AS (
    SELECT
      run_id,
      rank,
      any_value(total_ns) - sum(slower_ns) AS more_ns,
      any_value(median_ns) AS median_ns,
      sum(same_ns) AS same_ns,
      sum(slower_ns) AS slower_ns,
      max_by({name: name, same_ns: same_ns, slower_ns: slower_ns}, (slower_ns, name)) AS kernel
    FROM difference
    GROUP BY run_id, rank
  ),
  spread AS (
    -- Time of the kernels that are slower at least half as much as all together.
    SELECT summed.run_id, summed.rank, sum(difference.same_ns) AS same_ns
    FROM summed
    JOIN difference USING (run_id, rank)
    WHERE 2 * difference.slower_ns * summed.same_ns >= summed.slower_ns * difference.same_ns
    GROUP BY summed.run_id, summed.rank
  )
SELECT
  summed.run_id,
  summed.rank,
  CASE
    WHEN more_ns >= slower_ns THEN 'more_work'
    WHEN 2 * (slower_ns - kernel.slower_ns) * summed.same_ns < slower_ns * (summed.same_ns - kernel.same_ns) THEN 'one_kernel'
    WHEN 3 * spread.same_ns > 2 * summed.same_ns THEN 'slower_gpu'
  END AS reason,
  CASE reason WHEN 'one_kernel' THEN kernel.name END AS kernel_name,
  round(
    100 * CASE reason
      WHEN 'more_work' THEN more_ns / median_ns
      WHEN 'one_kernel' THEN kernel.slower_ns / kernel.same_ns
      ELSE slower_ns / summed.same_ns
    END
  )::BIGINT AS percent
FROM summed
LEFT JOIN spread USING (run_id, rank)
