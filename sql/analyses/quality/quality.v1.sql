-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "quality"
-- version  = 1
-- summary  = "Data-quality rules that fired, with the rows and time affected."
-- requires = ["data_quality@1", "over_peak@1"]
-- optional = ["op_work"]
-- grain    = ["run_id", "rank", "rule"]
-- order    = ["run_id", "rank", "rule"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", null = true, doc = "The rank; null if the rule is about the run." }
-- rule        = { type = "VARCHAR", doc = "The rule." }
-- severity    = { type = "VARCHAR", doc = "error, warning or info." }
-- rows        = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of rows affected." }
-- affected_ns = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Time covered by those rows; null if the rule is not about time." }
-- example     = { type = "VARCHAR", null = true, doc = "One of the affected rows." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  rule,
  severity,
  rows,
  affected_ns,
  example
FROM data_quality
UNION ALL
SELECT
  run_id,
  rank,
  rule,
  severity,
  operators AS rows,
  affected_ns,
  example
FROM over_peak
