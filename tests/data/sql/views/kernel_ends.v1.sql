-- /// tw
-- kind     = "view"
-- name     = "kernel_ends"
-- version  = 1
-- summary  = "When each kernel ended."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "Position in the file." }
-- end_ns   = { type = "BIGINT", unit = "ts", doc = "End." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  ts_ns + dur_ns AS end_ns
FROM kernels
