-- /// tw
-- kind     = "table"
-- name     = "data_loading_rules"
-- version  = 1
-- summary  = "Names of host slices in which a rank loads or waits for input data."
-- grain    = ["rule_id"]
-- order    = ["rule_id"]
--
-- [columns]
-- rule_id = { type = "INTEGER", unit = "id", doc = "Number of the rule." }
-- pattern = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the name of an operator or annotation." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  pattern
FROM (
  VALUES
    (1, '(?i)\bdata_?loader\b'),
    (2, '(?i)\b(load|fetch|get|read|prepare|next)_(next_)?(batch|data|inputs?|samples?)\b'),
    (3, '(?i)\b(batch|data|input)_(load|loading|fetch|wait)\b')
) AS rules (rule_id, pattern)
