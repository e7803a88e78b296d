-- /// tw
-- kind      = "table"
-- name      = "step_marks"
-- version   = 1
-- summary   = "A profiler step by its mark on the host."
-- requires  = ["parsed@1"]
-- grain     = ["run_id", "rank", "event_id"]
-- order     = ["run_id", "rank", "start_ns"]
-- transient = true
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The mark, a `ProfilerStep#N` slice." }
-- step     = { type = "BIGINT", unit = "id", doc = "The step's number." }
-- start_ns = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- end_ns   = { type = "BIGINT", signed = true, unit = "ts", doc = "End." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  TRY_CAST(regexp_extract(name, '^ProfilerStep#([0-9]+)', 1) AS BIGINT) AS step,
  ts_ns AS start_ns,
  ts_ns + dur_ns AS end_ns
FROM parsed
WHERE starts_with(name, 'ProfilerStep#') AND ph IN ('X', 'B') AND dur_ns IS NOT NULL
  AND category IN ('user_annotation', 'cpu_op')
  AND TRY_CAST(regexp_extract(name, '^ProfilerStep#([0-9]+)', 1) AS BIGINT) IS NOT NULL
