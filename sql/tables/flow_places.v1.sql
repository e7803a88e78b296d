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
  latest AS (
    SELECT pid, tid, ts_ns, max(pre) AS pre
    FROM calls
    SEMI JOIN arrow ON arrow.pid = calls.pid AND arrow.tid = calls.tid
    GROUP BY pid, tid, ts_ns
  )
SELECT
  arrow.run_id,
  arrow.rank,
  arrow.kernel_id,
  arrow.ts_ns,
  latest.pre
FROM arrow
ASOF JOIN latest ON latest.pid = arrow.pid AND latest.tid = arrow.tid AND latest.ts_ns <= arrow.ts_ns
