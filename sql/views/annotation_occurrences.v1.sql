-- /// tw
-- kind     = "view"
-- name     = "annotation_occurrences"
-- version  = 1
-- summary  = "Occurrences of each host annotation that do not begin within an earlier one of the same name."
-- requires = ["annotations@1"]
-- grain    = ["run_id", "rank", "name", "occurrence"]
-- order    = ["run_id", "rank", "name", "occurrence"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- name       = { type = "VARCHAR", doc = "Name of the annotation; occurrences without duration are not counted." }
-- occurrence = { type = "BIGINT", unit = "count", doc = "Number of the occurrence in time order, starting at 1." }
-- event_id   = { type = "BIGINT", unit = "id", doc = "The annotation." }
-- start_ns   = { type = "BIGINT", unit = "ts", signed = true, doc = "Start on the host." }
-- end_ns     = { type = "BIGINT", unit = "ts", signed = true, doc = "End on the host." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  named AS (
    SELECT
      run_id,
      rank,
      name,
      event_id,
      ts_ns AS start_ns,
      ts_ns + dur_ns AS end_ns,
      max(ts_ns + dur_ns) OVER earlier AS reached_ns
    FROM annotations
    WHERE name IS NOT NULL AND NOT on_gpu AND dur_ns > 0
    WINDOW earlier AS (
      PARTITION BY run_id, rank, name
      ORDER BY ts_ns, dur_ns DESC, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  )
SELECT
  run_id,
  rank,
  name,
  row_number() OVER (PARTITION BY run_id, rank, name ORDER BY start_ns, event_id) AS occurrence,
  event_id,
  start_ns,
  end_ns
FROM named
WHERE start_ns >= coalesce(reached_ns, start_ns)
