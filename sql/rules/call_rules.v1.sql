-- /// tw
-- kind      = "table"
-- name      = "call_rules"
-- version   = 1
-- summary   = "Classifies runtime calls by name: launch or synchronization."
-- grain     = ["rule_id"]
-- order     = ["rule_id"]
-- transient = true
--
-- [columns]
-- rule_id = { type = "INTEGER", unit = "id", doc = "The rule." }
-- action  = { type = "VARCHAR", doc = "launch: enqueues work on a device; sync: waits for a device." }
-- pattern = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the name." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  action,
  pattern
FROM (
  VALUES
    (1, 'launch', '(?i)launch.*kernel|kernellaunch'),
    (2, 'launch', '(?i)graphlaunch'),
    (3, 'launch', '(?i)memcpy|memset|usmfill|membuffer'),
    (4, 'launch', '^runFunction - job_prep'),
    (5, 'launch', '^AscendCL@aclnn.*[^e]$'),
    (10, 'sync', '(?i)synchronize')
) AS rules (rule_id, action, pattern)
