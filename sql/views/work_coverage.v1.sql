-- /// tw
-- kind     = "view"
-- name     = "work_coverage"
-- version  = 1
-- summary  = "FLOP of each rank and step, and the share of computation time in operators of known FLOP."
-- requires = ["op_work@1", "kernels@1"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank; ranks without computation have no row." }
-- step           = { type = "BIGINT", null = true, unit = "id", doc = "The step of the launch; null for all of the recording." }
-- model_flop     = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the model needs, without those of recomputation; null if no FLOP are known." }
-- hardware_flop  = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the hardware does, with those of recomputation." }
-- covered_ns     = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of computation in operators of known FLOP; that of norms, elementwise operators and copies is 0 by convention." }
-- computation_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of all computation." }
-- flop_coverage  = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "covered_ns / computation_ns." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  work AS (
    SELECT
      run_id,
      rank,
      step,
      sum(model_flop) FILTER (pass <> 'recompute')::BIGINT AS model_flop,
      sum(hardware_flop)::BIGINT AS hardware_flop,
      sum(gpu_union_ns + gpu_overlap_ns - other_sum_ns) FILTER (model_flop IS NOT NULL)::BIGINT AS covered_ns,
      grouping(step) AS is_total
    FROM op_work
    WHERE kernel_count > 0
    GROUP BY GROUPING SETS ((run_id, rank, step), (run_id, rank))
  ),
  computed AS (
    SELECT run_id, rank, step, sum(dur_ns)::BIGINT AS computation_ns, grouping(step) AS is_total
    FROM kernels
    WHERE kind = 'computation'
    GROUP BY GROUPING SETS ((run_id, rank, step), (run_id, rank))
  )
SELECT
  computed.run_id,
  computed.rank,
  computed.step,
  work.model_flop,
  work.hardware_flop,
  coalesce(work.covered_ns, 0) AS covered_ns,
  computed.computation_ns,
  CASE WHEN computed.computation_ns > 0 THEN coalesce(work.covered_ns, 0) / computed.computation_ns END AS flop_coverage
FROM computed
LEFT JOIN work
  ON work.run_id = computed.run_id
  AND work.rank = computed.rank
  AND work.is_total = computed.is_total
  AND work.step IS NOT DISTINCT FROM computed.step
WHERE computed.is_total = 1 OR computed.step IS NOT NULL
