-- /// tw
-- kind     = "view"
-- name     = "graph_replays"
-- version  = 1
-- summary  = "Each launch of a CUDA or HIP graph with the GPU activities that it replayed."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank", "runtime_id"]
-- order    = ["run_id", "rank", "start_ns", "runtime_id"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- runtime_id    = { type = "BIGINT", unit = "id", doc = "The call that launched the graph: cudaGraphLaunch, hipGraphLaunch. Launches without a recorded GPU activity have no row." }
-- correlation   = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Correlation ID that the call shares with its GPU activities." }
-- graph_id      = { type = "BIGINT", null = true, unit = "id", doc = "Graph as identified by the profiler; null if not recorded." }
-- shape         = { type = "VARCHAR", doc = "Hash of the replayed activities in order: kernel names without suffixes such as ` [clone .kd]`, memcpy or memset, and grid and block sizes where recorded. Equal for replays of one graph that were recorded completely." }
-- activities    = { type = "BIGINT", unit = "count", doc = "Number of GPU activities." }
-- start_ns      = { type = "BIGINT", signed = true, unit = "ts", doc = "Start of the first GPU activity." }
-- end_ns        = { type = "BIGINT", signed = true, unit = "ts", doc = "Latest end of a GPU activity." }
-- gpu_ns        = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of its GPU activities." }
-- busy_ns       = { type = "BIGINT", unit = "ns", doc = "Time in which at least one of them ran." }
-- gap_ns        = { type = "BIGINT", unit = "ns", doc = "Time between start_ns and end_ns in which none of them ran; busy_ns + gap_ns = end_ns - start_ns." }
-- launch_ns     = { type = "BIGINT", null = true, unit = "ns", doc = "Duration of the call on the host." }
-- step          = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step of the launch." }
-- order_in_step = { type = "BIGINT", unit = "count", doc = "Position among the replays of this shape in the step, or outside of steps among those under the same annotation, starting at 1." }
-- replays_in_step = { type = "BIGINT", unit = "count", doc = "Number of these replays." }
-- ended_last    = { type = "BOOLEAN", doc = "True for the rank's last replay on the GPU, which the end of the recording may have cut short." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  activity AS (
    SELECT
      run_id,
      rank,
      event_id,
      runtime_id,
      correlation,
      graph_id,
      ts_ns,
      ts_ns + dur_ns AS end_ns,
      dur_ns,
      launch_dur_ns,
      step,
      annotation_id,
      -- The part of a name after the symbol differs between capture and replay.
      concat_ws(
        ' ',
        CASE
          WHEN activity IN ('memcpy', 'memset') THEN activity
          ELSE regexp_replace(coalesce(name, ''), '( \[clone [^\]]*\]|\.kd)+$', '')
        END,
        grid_x,
        grid_y,
        grid_z,
        block_x,
        block_y,
        block_z
      ) AS node,
      max(ts_ns + dur_ns) OVER (
        PARTITION BY run_id, rank, runtime_id
        ORDER BY ts_ns, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS reached_ns
    FROM kernels
    WHERE contains(launch_api, 'GraphLaunch')
  ),
  replay AS (
    SELECT
      run_id,
      rank,
      runtime_id,
      min(correlation) AS correlation,
      min(graph_id) AS graph_id,
      left(md5(string_agg(node, chr(10) ORDER BY ts_ns, event_id)), 16) AS shape,
      count(*) AS activities,
      min(ts_ns) AS start_ns,
      max(end_ns) AS end_ns,
      sum(dur_ns)::BIGINT AS gpu_ns,
      sum(greatest(end_ns - greatest(ts_ns, coalesce(reached_ns, ts_ns)), 0))::BIGINT AS busy_ns,
      min(launch_dur_ns) AS launch_ns,
      min(step) AS step,
      min(annotation_id) AS annotation_id
    FROM activity
    GROUP BY run_id, rank, runtime_id
  )
SELECT
  run_id,
  rank,
  runtime_id,
  correlation,
  graph_id,
  shape,
  activities,
  start_ns,
  end_ns,
  gpu_ns,
  busy_ns,
  end_ns - start_ns - busy_ns AS gap_ns,
  launch_ns,
  step,
  row_number() OVER (
    PARTITION BY run_id, rank, shape, step, CASE WHEN step IS NULL THEN annotation_id END
    ORDER BY start_ns, runtime_id
  ) AS order_in_step,
  count(*) OVER (
    PARTITION BY run_id, rank, shape, step, CASE WHEN step IS NULL THEN annotation_id END
  ) AS replays_in_step,
  row_number() OVER (
    PARTITION BY run_id, rank
    ORDER BY end_ns DESC, start_ns DESC, runtime_id DESC
  ) = 1 AS ended_last
FROM replay
