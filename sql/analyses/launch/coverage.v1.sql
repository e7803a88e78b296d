-- /// tw
-- kind     = "analysis"
-- name     = "coverage"
-- version  = 1
-- summary  = "Share of each device's GPU time with a known launch, and with a known operator."
-- requires = ["kernels_attributed@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device"]
-- per      = "window"
-- order    = ["run_id", "rank", "device"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- device              = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- gpu_ns              = { type = "BIGINT", unit = "ns", aggregate = "sum", doc = "Sum of durations of all GPU activities: the sum of the next three columns." }
-- launch_known_ns     = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "higher", doc = "Activities whose launch is in the trace." }
-- before_window_ns    = { type = "BIGINT", unit = "ns", aggregate = "sum", doc = "Activities launched before the recording began: without a known launch, and earlier than the first activity of their stream that has one." }
-- missing_ns          = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Activities whose launch should be in the trace but is missing." }
-- with_op_ns          = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "higher", doc = "Activities of launch_known_ns with a known operator: launched within one, or of graph_attributed_ns. An operator around a graph launch with several activities only encloses that launch and does not count." }
-- graph_ns            = { type = "BIGINT", unit = "ns", aggregate = "sum", doc = "Activities of launch_known_ns that a graph launch with several activities replayed. A replay that was recorded as one activity (rule `graph_level_trace`) is not among them: its kernels are unknown." }
-- graph_attributed_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "higher", doc = "Activities of graph_ns whose operator is known from the capture of the graph (`tw derive graphs`), or whose module is annotated in the trace." }
-- launch_known        = { type = "DOUBLE", unit = "ratio", aggregate = "launch_known_ns/gpu_ns", better = "higher", null = true, doc = "launch_known_ns / gpu_ns; null if gpu_ns is 0." }
-- before_window       = { type = "DOUBLE", unit = "ratio", aggregate = "before_window_ns/gpu_ns", null = true, doc = "before_window_ns / gpu_ns." }
-- missing             = { type = "DOUBLE", unit = "ratio", aggregate = "missing_ns/gpu_ns", better = "lower", null = true, doc = "missing_ns / gpu_ns." }
-- with_op             = { type = "DOUBLE", unit = "ratio", aggregate = "with_op_ns/gpu_ns", better = "higher", null = true, doc = "with_op_ns / gpu_ns." }
-- in_graph            = { type = "DOUBLE", unit = "ratio", aggregate = "graph_ns/gpu_ns", null = true, doc = "graph_ns / gpu_ns." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  known AS (
    SELECT
      run_id,
      rank,
      device,
      dur_ns,
      launch_state,
      in_graph,
      CASE WHEN in_graph THEN op_sig IS NOT NULL OR attributed_by = 'annotation' ELSE attributed_by IS NOT NULL END AS has_op
    FROM kernels_attributed
  ),
  device_sum AS (
    SELECT
      run_id,
      rank,
      device,
      sum(dur_ns)::BIGINT AS gpu_ns,
      coalesce(sum(dur_ns) FILTER (launch_state = 'known'), 0)::BIGINT AS launch_known_ns,
      coalesce(sum(dur_ns) FILTER (launch_state = 'before_window'), 0)::BIGINT AS before_window_ns,
      coalesce(sum(dur_ns) FILTER (launch_state = 'missing'), 0)::BIGINT AS missing_ns,
      coalesce(sum(dur_ns) FILTER (launch_state = 'known' AND has_op), 0)::BIGINT AS with_op_ns,
      coalesce(sum(dur_ns) FILTER (in_graph), 0)::BIGINT AS graph_ns,
      coalesce(sum(dur_ns) FILTER (in_graph AND has_op), 0)::BIGINT AS graph_attributed_ns
    FROM known
    GROUP BY run_id, rank, device
  )
SELECT
  run_id,
  rank,
  device,
  gpu_ns,
  launch_known_ns,
  before_window_ns,
  missing_ns,
  with_op_ns,
  graph_ns,
  graph_attributed_ns,
  launch_known_ns / nullif(gpu_ns, 0) AS launch_known,
  before_window_ns / nullif(gpu_ns, 0) AS before_window,
  missing_ns / nullif(gpu_ns, 0) AS missing,
  with_op_ns / nullif(gpu_ns, 0) AS with_op,
  graph_ns / nullif(gpu_ns, 0) AS in_graph
FROM device_sum
