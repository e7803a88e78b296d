-- /// tw
-- kind     = "view"
-- name     = "replayed_activities"
-- version  = 1
-- summary  = "GPU activities that CUDA or HIP graph launches replayed, in the order of each replay."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "runtime_id", "position"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- event_id   = { type = "BIGINT", unit = "id", doc = "The GPU activity." }
-- runtime_id = { type = "BIGINT", unit = "id", doc = "The call that launched the graph." }
-- position   = { type = "BIGINT", unit = "count", doc = "Position in the replay by start, starting at 1." }
-- activity   = { type = "VARCHAR", doc = "kernel, memcpy, memset or other." }
-- kernel     = { type = "VARCHAR", doc = "Kernel name without suffixes such as ` [clone .kd]`; for a copy or memset, its activity. Comparable with `captured_launches`." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  runtime_id,
  row_number() OVER (
    PARTITION BY run_id, rank, runtime_id
    ORDER BY ts_ns, event_id
  ) AS position,
  activity,
  CASE
    WHEN activity IN ('memcpy', 'memset') THEN activity
    ELSE regexp_replace(coalesce(name, ''), '( \[clone [^\]]*\]|\.kd)+$', '')
  END AS kernel
FROM kernels
WHERE contains(launch_api, 'GraphLaunch')
