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
  memory AS (
    SELECT run_id, rank, event_id, pid, tid, ts_ns
    FROM events
    WHERE name = '[memory]' AND ph IN ('i', 'I') AND ts_ns IS NOT NULL
  ),
  beginning AS (
    -- Places rise with time on a thread: of slices that start together the innermost has the highest.
    SELECT slice.pid, slice.tid, slice.ts_ns, max(slice.pre) AS pre
    FROM events AS slice
    SEMI JOIN memory ON memory.pid = slice.pid AND memory.tid = slice.tid
    WHERE slice.pre IS NOT NULL AND slice.category IS DISTINCT FROM 'user_annotation'
    GROUP BY slice.pid, slice.tid, slice.ts_ns
  )
SELECT
  memory.run_id,
  memory.rank,
  memory.event_id,
  memory.ts_ns,
  beginning.pre
FROM memory
ASOF JOIN beginning
  ON beginning.pid = memory.pid AND beginning.tid = memory.tid AND beginning.ts_ns <= memory.ts_ns
