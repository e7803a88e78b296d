-- /// tw
-- kind     = "view"
-- name     = "execution_matches"
-- version  = 1
-- summary  = "Per rank, whether its execution trace and its trace are of the same run: IDs in both, and how many have the same name."
-- requires = ["execution_pairs@1", "join_rules@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- joined_by   = { type = "VARCHAR", doc = "Argument of the events that holds the ID: Record function id or External id." }
-- id_count    = { type = "BIGINT", unit = "count", doc = "IDs in both." }
-- equal_count = { type = "BIGINT", unit = "count", doc = "IDs with the same name in both." }
-- equal_share = { type = "DOUBLE", unit = "ratio", doc = "Their share." }
-- is_joined   = { type = "BOOLEAN", doc = "True if the files are of the same run: enough names agree (`join_rules`)." }
--
-- [changes]
-- 1 = "First version. IDs are small numbers, so equal IDs alone do not show that the files are of one run."
-- ///
SELECT
  pair.run_id,
  pair.rank,
  any_value(pair.joined_by) AS joined_by,
  count(*) AS id_count,
  count(*) FILTER (pair.names_equal) AS equal_count,
  count(*) FILTER (pair.names_equal) / count(*) AS equal_share,
  count(*) FILTER (pair.names_equal) >= any_value(rule.least_share) * count(*)
  AND count(DISTINCT pair.name) FILTER (pair.names_equal) >= any_value(rule.least_names) AS is_joined
FROM execution_pairs AS pair
JOIN join_rules AS rule USING (joined_by)
GROUP BY pair.run_id, pair.rank
