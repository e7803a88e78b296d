-- /// tw
-- kind     = "table"
-- name     = "data_quality"
-- version  = 1
-- summary  = "A rule that fired on a rank: how often, on how much time, and an example."
-- requires = ["rule_hits@1", "file_quality@1", "quality_rules@1", "events@1"]
-- grain    = ["run_id", "rank", "rule"]
-- order    = ["run_id", "rank", "severity", "rule"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", null = true, doc = "The rank; null where the rule is about the run." }
-- rule        = { type = "VARCHAR", doc = "The rule's name." }
-- severity    = { type = "VARCHAR", doc = "error: something is lost; warning: a number may mislead; info: good to know." }
-- rows        = { type = "BIGINT", unit = "count", doc = "Rows that fall under it." }
-- ns_affected = { type = "BIGINT", null = true, unit = "ns", doc = "Time that they concern, added up; null where no time is concerned, or more than 64 bits hold." }
-- example     = { type = "VARCHAR", null = true, doc = "The first of them: # and its event_id, and its name; of redacted values each event and path." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  counted AS (
    SELECT
      run_id,
      rank,
      rule,
      count(*) AS rows,
      TRY_CAST(sum(ns_affected) AS BIGINT) AS ns_affected,
      min(event_id) AS first_id
    FROM rule_hits
    GROUP BY run_id, rank, rule
  ),
  fired AS (
    SELECT
      counted.run_id,
      counted.rank,
      counted.rule,
      counted.rows,
      counted.ns_affected,
      left('#' || counted.first_id || coalesce(' ' || events.name, ''), 200) AS example
    FROM counted
    JOIN events ON events.event_id = counted.first_id
    UNION ALL
    SELECT run_id, rank, rule, rows, ns_affected, example
    FROM file_quality
  )
SELECT
  fired.run_id,
  fired.rank,
  fired.rule,
  quality_rules.severity,
  fired.rows,
  fired.ns_affected,
  fired.example
FROM fired
JOIN quality_rules ON quality_rules.rule = fired.rule
