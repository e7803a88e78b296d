-- /// tw
-- kind     = "analysis"
-- name     = "kernel_limits"
-- version  = 1
-- summary  = "What limits each kernel that Nsight Compute profiled: compute, memory, both alike (balanced) or latency; with its time in the trace."
-- requires = ["profiled_launches@1"]
-- needs    = ["kernel_metrics"]
-- grain    = ["run_id", "rank", "kernel", "grid", "block"]
-- order    = ["run_id", "rank", "-trace_sum_ns", "kernel", "grid", "block"]
--
-- [params]
-- min_share  = { type = "DOUBLE", unit = "ratio", default = 0.6, min = 0, max = 1, doc = "With both shares below this, neither compute nor memory is the limit." }
-- high_share = { type = "DOUBLE", unit = "ratio", default = 0.8, min = 0, max = 1, doc = "With a share above this, the higher one is the limit." }
-- min_lead   = { type = "DOUBLE", unit = "ratio", default = 0.1, min = 0, max = 1, doc = "Between them, the higher share is the limit if it leads by at least this; else they are balanced." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- kernel          = { type = "VARCHAR", null = true, doc = "Name of the kernel as Nsight Compute prints it." }
-- grid            = { type = "VARCHAR", null = true, doc = "Blocks as `(x, y, z)`." }
-- block           = { type = "VARCHAR", null = true, doc = "Threads of a block as `(x, y, z)`." }
-- profiled_count  = { type = "BIGINT", unit = "count", doc = "Number of profiled launches." }
-- limited_by      = { type = "VARCHAR", null = true, doc = "latency, with both shares below min_share: warps wait, as with low occupancy. Otherwise compute or memory, the higher share, if it is above high_share or leads by at least min_lead; else balanced. Null without both shares." }
-- compute_share   = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Mean share of the peak throughput of the SMs." }
-- memory_share    = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Mean share of the peak throughput of memory and caches." }
-- occupancy_share = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Mean achieved occupancy." }
-- replay_mean_ns  = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Mean duration under Nsight Compute, rounded down: not comparable with times in the trace." }
-- match           = { type = "VARCHAR", null = true, doc = "order: the trace has as many launches of this name, grid and block; shape: other numbers of them; null: none, or no trace." }
-- trace_count     = { type = "BIGINT", unit = "count", doc = "Launches in the trace with this name, grid and block." }
-- trace_sum_ns    = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Sum of their durations." }
-- pass            = { type = "VARCHAR", null = true, doc = "Pass of their operators: forward, backward, …; null if they belong to several, or without a match." }
--
-- [changes]
-- 1 = "First version. The limits are those of Nsight Compute's own rules: 60 %, 80 %, 10 points. Untested on real data."
-- ///
WITH
  per_shape AS (
    SELECT
      run_id,
      rank,
      kernel,
      grid,
      block,
      count(*) AS profiled_count,
      sum(compute_share ORDER BY process, launch) / count(compute_share) AS compute_share,
      sum(memory_share ORDER BY process, launch) / count(memory_share) AS memory_share,
      sum(occupancy_share ORDER BY process, launch) / count(occupancy_share) AS occupancy_share,
      sum(replay_ns)::BIGINT // count(replay_ns) AS replay_mean_ns,
      min(match) AS match,
      max(trace_count) AS trace_count,
      max(trace_sum_ns) AS trace_sum_ns,
      min(pass) AS pass
    FROM profiled_launches
    GROUP BY run_id, rank, kernel, grid, block
  )
SELECT
  run_id,
  rank,
  kernel,
  grid,
  block,
  profiled_count,
  CASE
    WHEN compute_share IS NULL OR memory_share IS NULL THEN NULL
    WHEN greatest(compute_share, memory_share) < $min_share THEN 'latency'
    -- Shares are percentages with two decimals; their difference is rounded, as 0.7 - 0.6 is less than 0.1.
    WHEN greatest(compute_share, memory_share) > $high_share OR round(abs(compute_share - memory_share), 6) >= $min_lead
      THEN CASE WHEN compute_share >= memory_share THEN 'compute' ELSE 'memory' END
    ELSE 'balanced'
  END AS limited_by,
  compute_share,
  memory_share,
  occupancy_share,
  replay_mean_ns,
  match,
  trace_count,
  trace_sum_ns,
  pass
FROM per_shape
