-- /// tw
-- kind      = "table"
-- name      = "launch_calls"
-- version   = 1
-- summary   = "A host call that launched a GPU row, and where it stands on its thread."
-- requires  = ["calls@1", "launches@1"]
-- grain     = ["run_id", "rank", "runtime_id"]
-- order     = ["run_id", "rank", "runtime_id"]
-- transient = true
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- runtime_id = { type = "BIGINT", unit = "id", doc = "The host call." }
-- pid        = { type = "VARCHAR", null = true, doc = "Its process." }
-- tid        = { type = "VARCHAR", null = true, doc = "Its thread." }
-- ts_ns      = { type = "BIGINT", unit = "ts", signed = true, doc = "Its start." }
-- pre        = { type = "BIGINT", unit = "id", doc = "Its place in the order of nesting." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id AS runtime_id,
  pid,
  tid,
  ts_ns,
  pre
FROM calls
WHERE event_id IN (SELECT runtime_id FROM launches)
