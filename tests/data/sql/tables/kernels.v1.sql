-- /// tw
-- kind     = "table"
-- name     = "kernels"
-- version  = 1
-- summary  = "Each GPU activity of a rank."
-- requires = ["parsed@1"]
-- grain    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "Position in the file." }
-- ts_ns    = { type = "BIGINT", unit = "ts", doc = "Start." }
-- dur_ns   = { type = "BIGINT", unit = "ns", doc = "Duration." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  ts_ns,
  dur_ns
FROM parsed
WHERE category = 'kernel'
