-- /// tw
-- kind     = "view"
-- name     = "training_slices"
-- version  = 1
-- summary  = "The slices of each rank's training thread, classified as operator, call, Python frame, annotation or other."
-- requires = ["training_threads@1", "events@1", "data_loading_rules@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "pre"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank; ranks without host slices have no rows. The thread is that of `training_threads`." }
-- event_id      = { type = "BIGINT", unit = "id", doc = "The slice; its duration is above 0." }
-- parent_id     = { type = "BIGINT", unit = "id", null = true, doc = "The slice around it, as in `events`." }
-- pre           = { type = "BIGINT", unit = "id", doc = "Position in nesting order (preorder) over the rank." }
-- start_ns      = { type = "BIGINT", unit = "ts", signed = true, doc = "Its start." }
-- end_ns        = { type = "BIGINT", unit = "ts", signed = true, doc = "Its end." }
-- category      = { type = "VARCHAR", doc = "step (of the profiler), annotation, operator, call (runtime and driver), python or other_slice." }
-- name          = { type = "VARCHAR", null = true, doc = "Its name, without object addresses." }
-- is_annotation = { type = "BOOLEAN", doc = "True for a user annotation, including a step. Annotations nest among themselves, and so do all other slices." }
-- next_id       = { type = "BIGINT", null = true, unit = "id", doc = "What runs in its layer when it ends: its first caller that it does not outlast; null for none." }
-- is_outlasted  = { type = "BOOLEAN", doc = "True if a slice that it called ends after it: that one runs on when it ends." }
-- is_loading    = { type = "BOOLEAN", doc = "True if it is an operator or annotation whose name matches `data_loading_rules`." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  on_thread AS (
    SELECT
      events.run_id,
      events.rank,
      events.event_id,
      events.parent_id,
      events.pre,
      events.crosses,
      events.ts_ns AS start_ns,
      events.ts_ns + events.dur_ns AS end_ns,
      events.category = 'user_annotation' AS is_annotation,
      CASE
        WHEN starts_with(events.name, 'ProfilerStep#') OR contains(events.name, ' step_num=') THEN 'step'
        WHEN events.category = 'user_annotation' THEN 'annotation'
        WHEN events.category = 'cpu_op' THEN 'operator'
        WHEN events.category IN ('cuda_runtime', 'cuda_driver') THEN 'call'
        WHEN events.category = 'python_function' THEN 'python'
        ELSE 'other_slice'
      END AS category,
      regexp_replace(events.name, ' at 0x[0-9a-fA-F]+', '', 'g') AS name
    FROM events
    JOIN training_threads AS thread
      ON thread.run_id = events.run_id
      AND thread.rank = events.rank
      AND thread.pid IS NOT DISTINCT FROM events.pid
      AND thread.tid IS NOT DISTINCT FROM events.tid
    WHERE events.pre IS NOT NULL AND events.dur_ns > 0
  ),
  outlasted AS (
    -- Slices that end after their caller, which is rare, with each of their callers that they outlast.
    SELECT slice.run_id, slice.rank, slice.event_id, slice.end_ns, 1 AS climb, caller.event_id AS caller_id, caller.parent_id AS next_id
    FROM on_thread AS slice
    JOIN on_thread AS caller
      ON caller.run_id = slice.run_id AND caller.rank = slice.rank AND caller.event_id = slice.parent_id
    WHERE slice.crosses
    UNION ALL
    SELECT outlasted.run_id, outlasted.rank, outlasted.event_id, outlasted.end_ns, climb + 1, caller.event_id, caller.parent_id
    FROM outlasted
    JOIN on_thread AS caller
      ON caller.run_id = outlasted.run_id
      AND caller.rank = outlasted.rank
      AND caller.event_id = outlasted.next_id
      AND caller.end_ns < outlasted.end_ns
  ),
  climbed AS (
    SELECT run_id, rank, event_id, arg_max_null(next_id, climb) AS next_id
    FROM outlasted
    GROUP BY run_id, rank, event_id
  ),
  loading_name AS (
    SELECT name
    FROM (SELECT DISTINCT name FROM on_thread WHERE category IN ('operator', 'annotation')) AS each_name
    SEMI JOIN data_loading_rules ON regexp_matches(each_name.name, data_loading_rules.pattern)
  )
SELECT
  on_thread.run_id,
  on_thread.rank,
  on_thread.event_id,
  on_thread.parent_id,
  on_thread.pre,
  on_thread.start_ns,
  on_thread.end_ns,
  on_thread.category,
  on_thread.name,
  on_thread.is_annotation,
  CASE WHEN climbed.event_id IS NULL THEN on_thread.parent_id ELSE climbed.next_id END AS next_id,
  shorter.caller_id IS NOT NULL AS is_outlasted,
  loading_name.name IS NOT NULL AND on_thread.category IN ('operator', 'annotation') AS is_loading
FROM on_thread
LEFT JOIN loading_name USING (name)
LEFT JOIN climbed USING (run_id, rank, event_id)
LEFT JOIN (SELECT DISTINCT run_id, rank, caller_id FROM outlasted) AS shorter
  ON shorter.run_id = on_thread.run_id AND shorter.rank = on_thread.rank AND shorter.caller_id = on_thread.event_id
