-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "quality"
-- version  = 1
-- summary  = "Which data-quality rules fired, how often, and for how much time."
-- requires = ["data_quality@1"]
-- grain    = ["run_id", "rank", "rule"]
-- order    = ["run_id", "rank", "rule"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", null = true, doc = "The rank; null where the rule is about the run." }
-- rule        = { type = "VARCHAR", doc = "The rule." }
-- severity    = { type = "VARCHAR", doc = "error, warning or info." }
-- rows        = { type = "BIGINT", unit = "count", better = "lower", doc = "How many rows it concerns." }
-- ns_affected = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "How much time those rows hold; null where the rule is not about time." }
-- example     = { type = "VARCHAR", null = true, doc = "One of them." }
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
  ns_affected,
  example
FROM data_quality
