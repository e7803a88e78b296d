-- /// tw
-- kind      = "table"
-- name      = "flow_places"
-- version   = 1
-- summary   = "Where the arrow to a GPU row without an id begins in the nesting of its thread."
-- requires  = ["parsed@1", "categories@1", "calls@1"]
-- grain     = ["run_id", "rank", "kernel_id"]
-- order     = ["run_id", "rank", "kernel_id"]
-- transient = true
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- kernel_id = { type = "BIGINT", unit = "id", doc = "The GPU row." }
-- ts_ns     = { type = "BIGINT", signed = true, unit = "ts", doc = "When the arrow begins." }
-- pre       = { type = "BIGINT", unit = "id", doc = "Place of the last call that started on its thread by then: the launch is that one or around it." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  lost AS (
    SELECT run_id, rank, event_id, pid, tid, ts_ns
    FROM parsed
    WHERE ph IN ('X', 'B') AND dur_ns IS NOT NULL AND coalesce(correlation, 0) <= 0
      AND category IN (SELECT category FROM categories WHERE role = 'device')
  ),
  arrow AS (
    SELECT lost.run_id, lost.rank, lost.event_id AS kernel_id, tail.pid, tail.tid, tail.ts_ns
    FROM lost
    JOIN parsed AS head
      ON head.ph = 'f' AND head.category = 'ac2g' AND head.pid = lost.pid
      AND head.tid = lost.tid AND head.ts_ns = lost.ts_ns
    JOIN parsed AS tail
      ON tail.ph = 's' AND tail.raw_category = head.raw_category AND tail.flow_id = head.flow_id
    QUALIFY row_number() OVER (PARTITION BY lost.event_id ORDER BY tail.ts_ns DESC, tail.event_id) = 1
  ),
  in_time AS (
    -- Places rise with time on a thread: the highest one so far is the latest call.
    SELECT kernel_id, pid, tid, ts_ns, NULL::BIGINT AS pre
    FROM arrow
    UNION ALL
    SELECT calls.event_id, calls.pid, calls.tid, calls.ts_ns, calls.pre
    FROM calls
    SEMI JOIN arrow ON arrow.pid = calls.pid AND arrow.tid = calls.tid
  ),
  placed AS (
    SELECT
      kernel_id,
      pre IS NULL AS is_arrow,
      max(pre) OVER (
        PARTITION BY pid, tid ORDER BY ts_ns, pre NULLS LAST, kernel_id ROWS UNBOUNDED PRECEDING
      ) AS latest_pre
    FROM in_time
  )
SELECT
  arrow.run_id,
  arrow.rank,
  arrow.kernel_id,
  arrow.ts_ns,
  placed.latest_pre AS pre
FROM arrow
JOIN placed ON placed.kernel_id = arrow.kernel_id
WHERE placed.is_arrow AND placed.latest_pre IS NOT NULL
