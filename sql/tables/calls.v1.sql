-- /// tw
-- kind      = "table"
-- name      = "calls"
-- version   = 1
-- summary   = "A host call of a GPU runtime or driver with usable times, and its place on its thread."
-- requires  = ["parsed@1", "nesting@1", "categories@1"]
-- grain     = ["run_id", "rank", "event_id"]
-- order     = ["run_id", "rank", "event_id"]
-- transient = true
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- event_id    = { type = "BIGINT", unit = "id", doc = "The call." }
-- api         = { type = "VARCHAR", doc = "Its category." }
-- name        = { type = "VARCHAR", null = true, doc = "The function." }
-- correlation = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Id shared with what it launched." }
-- pid         = { type = "VARCHAR", null = true, doc = "The process." }
-- tid         = { type = "VARCHAR", null = true, doc = "The thread." }
-- ts_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- end_ns      = { type = "BIGINT", signed = true, unit = "ts", doc = "End." }
-- pre         = { type = "BIGINT", unit = "id", doc = "Its place in the order of nesting." }
-- post        = { type = "BIGINT", unit = "id", doc = "Place of its last descendant." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  parsed.run_id,
  parsed.rank,
  parsed.event_id,
  parsed.category AS api,
  parsed.name,
  parsed.correlation,
  parsed.pid,
  parsed.tid,
  parsed.ts_ns,
  parsed.ts_ns + parsed.dur_ns AS end_ns,
  nesting.pre,
  nesting.post
FROM parsed
JOIN nesting ON nesting.event_id = parsed.event_id
WHERE parsed.category IN (SELECT category FROM categories WHERE role = 'runtime')
