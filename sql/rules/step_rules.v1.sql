-- /// tw
-- kind      = "table"
-- name      = "step_rules"
-- version   = 1
-- summary   = "Names of annotations and operators that mark steps in traces without profiler steps: the first rule that finds two steps applies."
-- grain     = ["rule_id"]
-- order     = ["rule_id"]
-- transient = true
--
-- [columns]
-- rule_id = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- pattern = { type = "VARCHAR", doc = "Regular expression (RE2); its first group is the number of the step. Without a group, steps are numbered from 0." }
-- extent  = { type = "VARCHAR", doc = "What the step covers: annotation, or until_next: from the start of one to the start of the next." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  pattern,
  extent
FROM (
  VALUES
    (1, '(?i)^(?:(?:train(?:ing)?|global)[ _])?step[ _#:=]*([0-9]+)', 'annotation'),
    (2, '(?i)^iter(?:ation)?[ _#:=]*([0-9]+)', 'annotation'),
    (3, '(?i)^(?:train(?:ing)?[ _])?batch[ _#:=]*([0-9]+)', 'annotation'),
    (4, '^\[pl\]\[profile\]run_training_batch$', 'annotation'),
    (5, '^\[pl\]\[profile\].*\.(?:training|validation|test|predict)_step$', 'annotation'),
    (6, '(?i)^train(?:ing)?[ _](?:step|batch|iter(?:ation)?)$', 'annotation'),
    (7, '^enumerate\(DataLoader\)#.*\.__next__$', 'until_next'),
    (8, ' step_num=([0-9]+)$', 'annotation')
) AS rules (rule_id, pattern, extent)
