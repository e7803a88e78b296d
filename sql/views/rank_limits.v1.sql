-- /// tw
-- kind     = "view"
-- name     = "rank_limits"
-- version  = 1
-- summary  = "The reasons that limit what may be claimed about a rank: its own, and those of its run."
-- requires = ["recording_reasons@1"]
-- grain    = ["run_id", "rank", "reason"]
-- order    = ["run_id", "rank", "reason"]
--
-- [columns]
-- run_id = { type = "VARCHAR", doc = "The run." }
-- rank   = { type = "INTEGER", doc = "The rank; only ranks with a limit." }
-- reason = { type = "VARCHAR", doc = "Name of the reason in `recording_rules`." }
-- state  = { type = "VARCHAR", doc = "usable with limits or not a basis, as in `recording_reasons`." }
-- text   = { type = "VARCHAR", doc = "The reason in words." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT run_id, rank, reason, state, text
FROM recording_reasons
WHERE level = 'limit' AND rank IS NOT NULL
UNION ALL
SELECT own.run_id, own.rank, of_run.reason, of_run.state, of_run.text
FROM (SELECT DISTINCT run_id, rank FROM recording_reasons WHERE rank IS NOT NULL) AS own
JOIN recording_reasons AS of_run ON of_run.run_id = own.run_id
WHERE of_run.level = 'limit' AND of_run.rank IS NULL
