-- /// tw
-- kind     = "view"
-- name     = "over_peak"
-- version  = 1
-- summary  = "Quality rule `over_peak`: operators of each rank that appear faster than its device can be."
-- requires = ["op_peaks@1", "quality_rules@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank; ranks without such operators have no row." }
-- rule        = { type = "VARCHAR", doc = "Always: over_peak." }
-- severity    = { type = "VARCHAR", doc = "Severity of the rule." }
-- operators   = { type = "BIGINT", unit = "count", doc = "Operators whose FLOP or bytes need longer at the peak rates than their GPU activities took." }
-- affected_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the times in which their GPU activities ran." }
-- example     = { type = "VARCHAR", doc = "The one that exceeds the peak most, FLOP first, and a possible reason; `op_work_summary` lists all in column over_reason." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  compared AS (
    SELECT
      run_id,
      rank,
      event_id,
      name,
      family,
      bound,
      gpu_union_ns,
      coalesce(hardware_flop / limit_flop_per_ns, 0) AS compute_ns,
      coalesce(bytes / limit_bytes_per_ns, 0) AS memory_ns,
      compute_ns > gpu_union_ns AS is_compute,
      greatest(compute_ns, memory_ns) / gpu_union_ns AS roofline
    FROM op_peaks
  ),
  explained AS (
    SELECT
      run_id,
      rank,
      event_id,
      gpu_union_ns,
      is_compute,
      roofline,
      name
      || ': '
      || format('{:.2f}', roofline)
      || CASE
        WHEN NOT is_compute THEN ' of the memory bandwidth: the data may be in a cache'
        WHEN family = 'conv' THEN ' of the peak rate: the algorithm (Winograd, FFT) may need fewer FLOP'
        WHEN bound = 'upper' THEN ' of the peak rate: the FLOP are an upper bound'
        ELSE ' of the peak rate: type, peak or rule may be wrong'
      END AS example
    FROM compared
    WHERE roofline > 1
  ),
  summed AS (
    SELECT
      run_id,
      rank,
      count(*) AS operators,
      sum(gpu_union_ns)::BIGINT AS affected_ns,
      arg_max(example, (is_compute, roofline, -event_id)) AS example
    FROM explained
    GROUP BY run_id, rank
  )
SELECT
  summed.run_id,
  summed.rank,
  rules.rule,
  rules.severity,
  summed.operators,
  summed.affected_ns,
  summed.example
FROM summed
JOIN quality_rules AS rules ON rules.rule = 'over_peak'
