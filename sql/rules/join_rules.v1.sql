-- /// tw
-- kind     = "table"
-- name     = "join_rules"
-- version  = 1
-- summary  = "When an execution trace belongs to the trace of its rank: how many names must agree, by the argument with the IDs."
-- grain    = ["joined_by"]
-- order    = ["joined_by"]
--
-- [columns]
-- joined_by   = { type = "VARCHAR", doc = "Argument of the events that holds the ID." }
-- least_share = { type = "DOUBLE", unit = "ratio", doc = "Share of the IDs in both that must have the same name." }
-- least_names = { type = "BIGINT", unit = "count", doc = "Number of distinct names that must agree." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  joined_by,
  least_share::DOUBLE AS least_share,
  least_names::BIGINT AS least_names
FROM (
  VALUES
    -- External IDs are small numbers: a few operators of one name agree by accident.
    ('External id', 0.99, 5),
    ('Record function id', 0.99, 1)
) AS rules (joined_by, least_share, least_names)
