-- /// tw
-- kind     = "view"
-- name     = "rank_activities"
-- version  = 1
-- summary  = "What a rank does when, by kind: the intervals that explain why it is late at a collective."
-- requires = ["kernels@1", "events@1", "steps@1", "data_loading_rules@1"]
-- grain    = ["run_id", "rank", "kind", "event_id"]
-- order    = ["run_id", "rank", "kind", "start_ns"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- kind     = { type = "VARCHAR", doc = "computation, communication or copies (GPU activities; on ranks without any, operators and backend annotations of the host), data (host slices that load input data, by `data_loading_rules`), or step (the period of a profiler step)." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The event; of a step its first annotation." }
-- on_gpu   = { type = "BOOLEAN", doc = "True for a GPU activity." }
-- start_ns = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- end_ns   = { type = "BIGINT", signed = true, unit = "ts", doc = "End. Intervals of a rank may overlap." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  slice AS (
    SELECT
      run_id,
      rank,
      event_id,
      name,
      category = 'cpu_op' AS is_operator,
      ts_ns AS start_ns,
      ts_ns + dur_ns AS end_ns
    FROM events
    WHERE category IN ('cpu_op', 'user_annotation') AND pre IS NOT NULL
  ),
  named AS (
    SELECT DISTINCT name
    FROM slice
  ),
  loading AS (
    SELECT DISTINCT named.name
    FROM named
    JOIN data_loading_rules AS rule ON regexp_matches(named.name, rule.pattern)
  ),
  gpu_rank AS (
    SELECT DISTINCT run_id, rank
    FROM kernels
  )
SELECT
  run_id,
  rank,
  CASE WHEN kind IN ('computation', 'communication') THEN kind ELSE 'copies' END AS kind,
  event_id,
  TRUE AS on_gpu,
  ts_ns AS start_ns,
  ts_ns + dur_ns AS end_ns
FROM kernels
UNION ALL
SELECT slice.run_id, slice.rank, 'data', slice.event_id, FALSE, slice.start_ns, slice.end_ns
FROM slice
SEMI JOIN loading USING (name)
UNION ALL
SELECT
  slice.run_id,
  slice.rank,
  CASE WHEN regexp_matches(slice.name, '^(gloo|mpi):') THEN 'communication' ELSE 'computation' END,
  slice.event_id,
  FALSE,
  slice.start_ns,
  slice.end_ns
FROM slice
ANTI JOIN gpu_rank USING (run_id, rank)
WHERE slice.is_operator OR regexp_matches(slice.name, '^(gloo|mpi):')
UNION ALL
SELECT run_id, rank, 'step', event_id, FALSE, period_start_ns, period_start_ns + period_ns
FROM steps
