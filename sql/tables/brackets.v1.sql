-- /// tw
-- kind      = "table"
-- name      = "brackets"
-- version   = 1
-- summary   = "A B row and the E row that ends it: on a thread the last begin still open ends first."
-- requires  = ["raw@1"]
-- grain     = ["run_id", "rank", "begin_id"]
-- order     = ["run_id", "rank", "begin_id"]
-- transient = true
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- begin_id = { type = "BIGINT", unit = "id", doc = "The B row." }
-- end_id   = { type = "BIGINT", unit = "id", doc = "The E row." }
-- end_ts   = { type = "DECIMAL(28,9)", doc = "The time of the E row as in the file, in us." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  bracket AS (
    -- A begin and its end stand on the same level of their thread.
    SELECT
      run_id,
      rank,
      event_id,
      ph,
      ts,
      pid ->> '$' AS pid,
      tid ->> '$' AS tid,
      sum(CASE ph WHEN 'B' THEN 1 ELSE -1 END) OVER (
        PARTITION BY pid ->> '$', tid ->> '$' ORDER BY ts, event_id ROWS UNBOUNDED PRECEDING
      ) + CASE ph WHEN 'B' THEN 0 ELSE 1 END AS level
    FROM raw
    WHERE ph IN ('B', 'E') AND ts IS NOT NULL
  ),
  neighbour AS (
    SELECT
      run_id,
      rank,
      event_id AS begin_id,
      ph,
      lead(event_id) OVER onwards AS end_id,
      lead(ph) OVER onwards AS end_ph,
      lead(ts) OVER onwards AS end_ts
    FROM bracket
    WINDOW onwards AS (PARTITION BY pid, tid, level ORDER BY ts, event_id)
  )
SELECT
  run_id,
  rank,
  begin_id,
  end_id,
  end_ts
FROM neighbour
WHERE ph = 'B' AND end_ph = 'E'
