-- /// tw
-- kind     = "view"
-- name     = "common_windows"
-- version  = 1
-- summary  = "From when on a rank can be compared, if recordings of its run do not start together."
-- requires = ["ranks@1", "kernels@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run; only runs with a recording that starts late." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- from_ns = { type = "BIGINT", unit = "ts", signed = true, doc = "End of the first communication that ends after all ranks were recording: ranks may have waited in it for one that was not recorded yet. Without any, the time from which all ranks were recording." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  ranks.run_id,
  ranks.rank,
  coalesce(min(kernels.ts_ns + kernels.dur_ns), any_value(ranks.common_start_ns)) AS from_ns
FROM ranks
LEFT JOIN kernels
  ON kernels.run_id = ranks.run_id
  AND kernels.rank = ranks.rank
  AND kernels.kind = 'communication'
  AND kernels.ts_ns + kernels.dur_ns > ranks.common_start_ns
WHERE ranks.common_start_ns IS NOT NULL
GROUP BY ranks.run_id, ranks.rank
