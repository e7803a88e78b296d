-- /// tw
-- kind      = "table"
-- name      = "memory_places"
-- version   = 1
-- summary   = "Where an allocation or a free falls in the nesting of its thread."
-- requires  = ["events@1"]
-- grain     = ["run_id", "rank", "event_id"]
-- order     = ["run_id", "rank", "event_id"]
-- transient = true
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The allocation or free." }
-- ts_ns    = { type = "BIGINT", signed = true, unit = "ts", doc = "When." }
-- pre      = { type = "BIGINT", unit = "id", doc = "Place of the last slice that started on its thread by then: the operator is that one or around it." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  latest AS (
    SELECT pid, tid, ts_ns, max(pre) AS pre
    FROM events
    WHERE pre IS NOT NULL AND category IS DISTINCT FROM 'user_annotation'
    GROUP BY pid, tid, ts_ns
  )
SELECT
  memory.run_id,
  memory.rank,
  memory.event_id,
  memory.ts_ns,
  latest.pre
FROM events AS memory
ASOF JOIN latest ON latest.pid = memory.pid AND latest.tid = memory.tid AND latest.ts_ns <= memory.ts_ns
WHERE memory.name = '[memory]' AND memory.ph IN ('i', 'I')
