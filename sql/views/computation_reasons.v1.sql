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
-- rank        = { type = "INTEGER", doc = "The rank; only ranks whose kernels take longer in total than those of the median rank." }
-- reason      = { type = "VARCHAR", null = true, doc = "more_work: at least half of the difference is calls that the median rank does not make, or makes with other shapes. one_kernel: without the kernel with most of it, by name, calls take less than half as much longer. slower_gpu: kernels with more than two thirds of the time take longer per call, each at least half as much as all together. Null if it is none of these." }
-- kernel_name = { type = "VARCHAR", null = true, doc = "The kernel with most of the difference." }
-- percent     = { type = "BIGINT", null = true, doc = "How much longer calls take, of that kernel or in total, or how much more time the additional work takes, in percent." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  rank_count AS (
    SELECT run_id, count(DISTINCT rank) AS ranks
    FROM kernel_calls
    GROUP BY run_id
  ),
  usual AS (
    -- What most ranks do not call has a median of 0 calls.
    SELECT
      kernel.run_id,
      kernel.name,
      kernel.op_sig,
      CASE WHEN 2 * count(*) > any_value(rank_count.ranks) THEN quantile_disc(kernel.calls, 0.5) ELSE 0 END AS calls,
      quantile_disc(kernel.call_ns, 0.5) AS call_ns
    FROM kernel_calls AS kernel
    JOIN rank_count ON rank_count.run_id = kernel.run_id
    GROUP BY kernel.run_id, kernel.name, kernel.op_sig
  ),
  difference AS (
    SELECT
      kernel.run_id,
      kernel.rank,
      kernel.name,
      sum(kernel.calls * kernel.call_ns) AS own_ns,
      sum((kernel.calls - usual.calls) * kernel.call_ns) AS work_ns,
      sum(usual.calls * (kernel.call_ns - usual.call_ns)) AS rate_ns,
      sum(usual.calls * usual.call_ns) AS usual_ns
    FROM kernel_calls AS kernel
    JOIN usual
      ON usual.run_id = kernel.run_id AND usual.name = kernel.name AND usual.op_sig IS NOT DISTINCT FROM kernel.op_sig
    GROUP BY kernel.run_id, kernel.rank, kernel.name
  ),
  missing AS (
    -- Calls of most ranks that this one does not make.
    SELECT every.run_id, every.rank, sum(usual.calls * usual.call_ns) AS less_ns
    FROM (SELECT DISTINCT run_id, rank FROM kernel_calls) AS every
    JOIN usual ON usual.run_id = every.run_id
    ANTI JOIN kernel_calls AS kernel
      ON kernel.run_id = every.run_id
      AND kernel.rank = every.rank
      AND kernel.name = usual.name
      AND kernel.op_sig IS NOT DISTINCT FROM usual.op_sig
    GROUP BY every.run_id, every.rank
  ),
  total AS (
    SELECT
      difference.run_id,
      difference.rank,
      sum(own_ns) AS own_ns,
      sum(work_ns) - coalesce(any_value(missing.less_ns), 0) AS more_ns,
      sum(rate_ns) AS slower_ns,
      sum(usual_ns) AS usual_ns
    FROM difference
    LEFT JOIN missing ON missing.run_id = difference.run_id AND missing.rank = difference.rank
    GROUP BY difference.run_id, difference.rank
  ),
  compared AS (
    SELECT
      total.run_id,
      total.rank,
      any_value(total.more_ns) AS more_ns,
      any_value(total.slower_ns) AS slower_ns,
      any_value(total.own_ns) AS own_ns,
      any_value(total.usual_ns) AS usual_ns,
      max(difference.rate_ns) AS kernel_ns,
      arg_max(difference.name, difference.rate_ns) AS kernel_name,
      arg_max(difference.usual_ns, difference.rate_ns) AS kernel_usual_ns,
      sum(difference.own_ns) FILTER (2 * difference.rate_ns * total.usual_ns >= difference.usual_ns * total.slower_ns) AS slower_share_ns
    FROM total
    JOIN difference ON difference.run_id = total.run_id AND difference.rank = total.rank
    WHERE total.more_ns + total.slower_ns > 0
    GROUP BY total.run_id, total.rank
  )
SELECT
  run_id,
  rank,
  CASE
    WHEN 2 * more_ns >= more_ns + slower_ns THEN 'more_work'
    WHEN 2 * (slower_ns - kernel_ns) * usual_ns < slower_ns * (usual_ns - kernel_usual_ns) THEN 'one_kernel'
    WHEN 2 * (own_ns - slower_share_ns) < slower_share_ns THEN 'slower_gpu'
  END AS reason,
  kernel_name,
  round(
    100 * CASE reason
      WHEN 'more_work' THEN more_ns / (own_ns - more_ns)
      WHEN 'one_kernel' THEN kernel_ns / kernel_usual_ns
      ELSE slower_ns / usual_ns
    END
  )::BIGINT AS percent
FROM compared
