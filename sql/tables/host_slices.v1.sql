-- /// tw
-- kind      = "table"
-- name      = "host_slices"
-- version   = 1
-- summary   = "Slices of host threads in nesting order: start, longest first, then file order."
-- requires  = ["parsed@1", "categories@1"]
-- grain     = ["run_id", "rank", "event_id"]
-- order     = ["run_id", "rank", "event_id"]
-- transient = true
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The slice." }
-- thread   = { type = "BIGINT", unit = "id", doc = "Number of its process, thread and layer: annotations are a layer of their own." }
-- pre      = { type = "BIGINT", unit = "id", doc = "Its place among all slices of the rank, thread by thread, from 1." }
-- ts_ns    = { type = "BIGINT", unit = "ts", signed = true, doc = "Start." }
-- end_ns   = { type = "BIGINT", unit = "ts", signed = true, doc = "End." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  no_host_slice AS (
    SELECT DISTINCT category
    FROM categories
    WHERE role IN ('device', 'device_annotation', 'device_range', 'device_event', 'sync', 'span', 'flow')
  ),
  slice AS (
    SELECT
      run_id,
      rank,
      event_id,
      category IS NOT DISTINCT FROM 'user_annotation' AS is_annotation,
      coalesce(pid, '') AS pid,
      coalesce(tid, '') AS tid,
      ts_ns,
      dur_ns
    FROM parsed
    ANTI JOIN no_host_slice ON no_host_slice.category = parsed.category
    WHERE ph IN ('X', 'B') AND dur_ns IS NOT NULL
  ),
  lane AS (
    SELECT pid, tid, is_annotation, row_number() OVER (ORDER BY is_annotation, pid, tid) AS thread
    FROM (SELECT DISTINCT pid, tid, is_annotation FROM slice)
  )
SELECT
  slice.run_id,
  slice.rank,
  slice.event_id,
  lane.thread,
  row_number() OVER (ORDER BY lane.thread, slice.ts_ns, slice.dur_ns DESC, slice.event_id) AS pre,
  slice.ts_ns,
  slice.ts_ns + slice.dur_ns AS end_ns
FROM slice
JOIN lane USING (pid, tid, is_annotation)
