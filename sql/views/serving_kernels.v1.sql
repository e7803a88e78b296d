-- /// tw
-- kind     = "view"
-- name     = "serving_kernels"
-- version  = 1
-- summary  = "GPU activities that each step of an inference server launches on its thread, whenever they run."
-- requires = ["serving_steps@1", "runtime@1", "kernels@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns", "event_id"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The GPU activity." }
-- step_id  = { type = "BIGINT", unit = "id", doc = "event_id of the step in `serving_steps`." }
-- start_ns = { type = "BIGINT", signed = true, unit = "ts", doc = "Start of the activity." }
-- end_ns   = { type = "BIGINT", signed = true, unit = "ts", doc = "End of the activity." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  launch AS (
    SELECT runtime.run_id, runtime.rank, runtime.event_id AS runtime_id, serving_steps.event_id AS step_id
    FROM runtime
    ASOF JOIN serving_steps
      ON serving_steps.run_id = runtime.run_id
      AND serving_steps.rank = runtime.rank
      AND serving_steps.pid IS NOT DISTINCT FROM runtime.pid
      AND serving_steps.tid IS NOT DISTINCT FROM runtime.tid
      AND serving_steps.start_ns <= runtime.ts_ns
    WHERE runtime.ts_ns < serving_steps.end_ns
  )
SELECT
  kernels.run_id,
  kernels.rank,
  kernels.event_id,
  launch.step_id,
  kernels.ts_ns AS start_ns,
  kernels.ts_ns + kernels.dur_ns AS end_ns
FROM kernels
JOIN launch USING (run_id, rank, runtime_id)
