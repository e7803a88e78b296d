-- /// tw
-- kind      = "table"
-- name      = "step_spans"
-- version   = 1
-- summary   = "Stretches of time that belong to one profiler step; where steps overlap, to the later one."
-- requires  = ["step_marks@1"]
-- grain     = ["run_id", "rank", "start_ns"]
-- order     = ["run_id", "rank", "start_ns"]
-- transient = true
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- step     = { type = "BIGINT", unit = "id", doc = "The step's number." }
-- start_ns = { type = "BIGINT", signed = true, unit = "ts", doc = "Start, inclusive." }
-- end_ns   = { type = "BIGINT", signed = true, unit = "ts", doc = "End, exclusive." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  edge AS (
    SELECT start_ns AS edge_ns
    FROM step_marks
    UNION
    SELECT end_ns AS edge_ns
    FROM step_marks
  ),
  stretch AS (
    SELECT edge_ns AS start_ns, lead(edge_ns) OVER (ORDER BY edge_ns) AS end_ns
    FROM edge
  )
SELECT
  mark.run_id,
  mark.rank,
  arg_max(mark.step, (mark.start_ns, mark.event_id)) AS step,
  stretch.start_ns,
  stretch.end_ns
FROM stretch
JOIN step_marks AS mark ON mark.start_ns <= stretch.start_ns AND stretch.start_ns < mark.end_ns
WHERE stretch.end_ns IS NOT NULL
GROUP BY mark.run_id, mark.rank, stretch.start_ns, stretch.end_ns
