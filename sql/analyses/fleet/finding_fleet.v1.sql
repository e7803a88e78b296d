-- /// tw
-- kind     = "analysis"
-- scope    = "fleet"
-- like     = "fleet_base@1"
-- name     = "finding_fleet"
-- version  = 1
-- summary  = "Findings that cost most over runs, per period, label, model and GPU, from recorded results."
-- requires = ["recorded_findings@1"]
-- per      = "window"
-- empty    = "no run has recorded findings"
--
-- [columns]
-- name   = { null = false, doc = "The rule, as in `tw check`." }
-- runs   = { doc = "Number of runs with a finding of the rule." }
-- count  = { doc = "Number of findings, of all ranks." }
-- sum_ns = { doc = "Sum of what the findings would save at most (saving_ns), of all ranks. Savings of different rules overlap." }
-- share  = { doc = "sum_ns as a share of the analyzed time of the ranks with findings, over all runs of the group; null if that is 0." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  whole AS (
    SELECT run_id, sum(analyzed_ns)::BIGINT AS whole_ns
    FROM (
      SELECT run_id, rank, max(analyzed_ns) AS analyzed_ns
      FROM recorded_findings
      GROUP BY run_id, rank
    ) AS of_rank
    GROUP BY run_id
  )
SELECT
  run_id,
  rule AS name,
  count(*) AS count,
  coalesce(sum(saving_ns), 0)::BIGINT AS sum_ns,
  any_value(whole_ns) AS whole_ns
FROM recorded_findings
JOIN whole USING (run_id)
GROUP BY run_id, rule
