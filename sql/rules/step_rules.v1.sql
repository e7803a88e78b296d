-- /// tw
-- kind      = "table"
-- name      = "step_rules"
-- version   = 1
-- summary   = "Names of annotations that mark steps in traces without profiler steps: the first rule that finds two steps applies."
-- grain     = ["rule_id"]
-- order     = ["rule_id"]
-- transient = true
--
-- [columns]
-- rule_id = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- pattern = { type = "VARCHAR", doc = "Regular expression (RE2); its first group is the number of the step." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  pattern
FROM (
  VALUES
    (1, '(?i)^(?:(?:train(?:ing)?|global)[ _])?step[ _#:=]*([0-9]+)'),
    (2, '(?i)^iter(?:ation)?[ _#:=]*([0-9]+)'),
    (3, '(?i)^(?:train(?:ing)?[ _])?batch[ _#:=]*([0-9]+)')
) AS rules (rule_id, pattern)
