-- /// tw
-- kind     = "analysis"
-- name     = "graph_summary"
-- version  = 1
-- summary  = "CUDA and HIP graphs: replays, GPU time, gaps between their activities, and how many activities have an operator."
-- requires = ["graph_replays@1", "kernels@1", "graph_nodes@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "shape"]
-- order    = ["run_id", "rank", "-gpu_sum_ns"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run. Runs without graph launches have no row." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- shape       = { type = "VARCHAR", doc = "Hash of the replayed activities in order, as in `graph_replays`. A replay that was recorded in part has a separate shape." }
-- replays     = { type = "BIGINT", unit = "count", doc = "Number of launches of the graph." }
-- activities  = { type = "BIGINT", unit = "count", doc = "GPU activities of one replay." }
-- gpu_sum_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "Sum of the durations of the GPU activities of all replays." }
-- busy_ns     = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time in which at least one activity of a replay ran, summed over replays." }
-- gap_ns      = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time from the first start to the last end in which none ran, summed over replays." }
-- launch_ns   = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Sum of the durations of the launching calls." }
-- gpu_mean_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "gpu_sum_ns per replay, rounded down." }
-- attributed  = { type = "BIGINT", unit = "count", better = "higher", doc = "GPU activities of all replays with a known operator, from the capture of the graph. 0 unless derived by `tw derive graphs`." }
-- how         = { type = "VARCHAR", null = true, doc = "Evidence, as in `graph_nodes`: same_list, aligned or by_order (not certain). Null if no capture matches or none was searched." }
-- capture_run = { type = "VARCHAR", null = true, doc = "Run that recorded the capture." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  replay AS (
    SELECT run_id, rank, runtime_id, shape, activities, gpu_ns, busy_ns, gap_ns, launch_ns
    FROM graph_replays
  ),
  node AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.runtime_id,
      count(node.op_name) AS attributed,
      min(node.how) AS how,
      min(node.capture_run) AS capture_run
    FROM graph_nodes AS node
    JOIN kernels USING (run_id, rank, event_id)
    GROUP BY kernels.run_id, kernels.rank, kernels.runtime_id
  )
SELECT
  replay.run_id,
  replay.rank,
  replay.shape,
  count(*) AS replays,
  min(replay.activities) AS activities,
  sum(replay.gpu_ns)::BIGINT AS gpu_sum_ns,
  sum(replay.busy_ns)::BIGINT AS busy_ns,
  sum(replay.gap_ns)::BIGINT AS gap_ns,
  sum(replay.launch_ns)::BIGINT AS launch_ns,
  sum(replay.gpu_ns)::BIGINT // count(*) AS gpu_mean_ns,
  coalesce(sum(node.attributed), 0)::BIGINT AS attributed,
  min(node.how) AS how,
  min(node.capture_run) AS capture_run
FROM replay
LEFT JOIN node USING (run_id, rank, runtime_id)
GROUP BY replay.run_id, replay.rank, replay.shape
