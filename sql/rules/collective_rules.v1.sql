-- /// tw
-- kind     = "table"
-- name     = "collective_rules"
-- version  = 1
-- summary  = "Classifies collectives by name; the first matching rule applies."
-- grain    = ["rule_id"]
-- order    = ["rule_id"]
--
-- [columns]
-- rule_id       = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- pattern       = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the name." }
-- collective    = { type = "VARCHAR", doc = "all_reduce, all_gather, reduce_scatter, all_to_all, barrier, broadcast, …." }
-- waits_for_all = { type = "BOOLEAN", doc = "True if no rank can leave it before the last one arrives (a synchronizing collective)." }
-- same_sizes    = { type = "BOOLEAN", doc = "True if all ranks pass the same number of elements." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  pattern,
  collective,
  waits_for_all,
  same_sizes
FROM (
  VALUES
    (1, '(?i)reduce_?scatter', 'reduce_scatter', TRUE, TRUE),
    (2, '(?i)all_?reduce|cross_device_reduce|(one|two)_?shot_?reduce', 'all_reduce', TRUE, TRUE),
    (3, '(?i)all_?gather', 'all_gather', TRUE, TRUE),
    (4, '(?i)all_?to_?all|all2all|a2a|ep(dispatch|combine)[a-z]', 'all_to_all', TRUE, FALSE),
    (5, '(?i)barrier', 'barrier', TRUE, TRUE),
    (6, '(?i)broadcast', 'broadcast', FALSE, TRUE),
    (7, '(?i)send_?recv', 'send_recv', FALSE, FALSE),
    (8, '(?i)gather', 'gather', FALSE, FALSE),
    (9, '(?i)scatter', 'scatter', FALSE, FALSE),
    (10, '(?i)reduce', 'reduce', FALSE, TRUE),
    (11, '(?i)(^|[^a-z])i?send([^a-z]|$)', 'send', FALSE, FALSE),
    (12, '(?i)(^|[^a-z])i?recv', 'recv', FALSE, FALSE)
) AS rules (rule_id, pattern, collective, waits_for_all, same_sizes)
