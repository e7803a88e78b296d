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
    SELECT event_id, pid, tid, ts_ns
    FROM events
    WHERE name = '[memory]' AND ph IN ('i', 'I') AND ts_ns IS NOT NULL
  ),
  in_time AS (
    -- Places rise with time on a thread: the highest one so far is the latest slice.
    SELECT event_id, pid, tid, ts_ns, NULL::BIGINT AS pre
    FROM memory
    UNION ALL
    SELECT slice.event_id, slice.pid, slice.tid, slice.ts_ns, slice.pre
    FROM events AS slice
    SEMI JOIN memory ON memory.pid = slice.pid AND memory.tid = slice.tid
    WHERE slice.pre IS NOT NULL AND slice.category IS DISTINCT FROM 'user_annotation'
  ),
  placed AS (
    SELECT
      event_id,
      pre IS NULL AS is_memory,
      max(pre) OVER (
        PARTITION BY pid, tid ORDER BY ts_ns, pre NULLS LAST, event_id ROWS UNBOUNDED PRECEDING
      ) AS latest_pre
    FROM in_time
  )
SELECT
  events.run_id,
  events.rank,
  events.event_id,
  events.ts_ns,
  placed.latest_pre AS pre
FROM placed
JOIN events ON events.event_id = placed.event_id
WHERE placed.is_memory AND placed.latest_pre IS NOT NULL
