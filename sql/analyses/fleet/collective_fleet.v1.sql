-- /// tw
-- kind     = "analysis"
-- scope    = "fleet"
-- like     = "fleet_base@1"
-- name     = "collective_fleet"
-- version  = 1
-- summary  = "Collectives that cost most over runs, per period, label, model and GPU, from recorded results."
-- requires = ["recorded_kernel_summary@1", "collective_rules@1"]
-- per      = "window"
-- empty    = "no run with collectives on the GPU has a recorded kernel_summary"
--
-- [columns]
-- name   = { doc = "all_reduce, all_gather, … (from `collective_rules`, by the name of the kernel); other if no rule matches." }
-- count  = { doc = "Number of GPU activities of these collectives, of all ranks." }
-- sum_ns = { doc = "Sum of their durations, which include waits for other ranks." }
-- share  = { doc = "sum_ns as a share of the GPU time of all runs of the group with collectives; null if that is 0." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  classified AS (
    SELECT named.name, arg_min(rule.collective, rule.rule_id) AS collective
    FROM (SELECT DISTINCT name FROM recorded_kernel_summary WHERE kind = 'communication') AS named
    JOIN collective_rules AS rule ON regexp_matches(named.name, rule.pattern)
    GROUP BY named.name
  ),
  whole AS (
    SELECT run_id, sum(sum_ns) AS whole_ns
    FROM recorded_kernel_summary
    GROUP BY run_id
  )
SELECT
  run_id,
  coalesce(classified.collective, 'other') AS name,
  sum(count)::BIGINT AS count,
  sum(sum_ns)::BIGINT AS sum_ns,
  any_value(whole_ns) AS whole_ns
FROM recorded_kernel_summary AS kernel
LEFT JOIN classified ON classified.name = kernel.name
JOIN whole USING (run_id)
WHERE kind = 'communication'
GROUP BY run_id, coalesce(classified.collective, 'other')
