-- /// tw
-- kind     = "view"
-- name     = "profiled_launches"
-- version  = 1
-- summary  = "Launches that Nsight Compute profiled, with the shares of the peaks that they reached, and the same kernel in the trace."
-- requires = ["kernel_metrics@1", "metric_rules@1", "kernels@1"]
-- grain    = ["run_id", "rank", "process", "launch"]
-- order    = ["run_id", "rank", "process", "launch"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- process         = { type = "VARCHAR", null = true, doc = "Process ID." }
-- launch          = { type = "BIGINT", unit = "id", doc = "Nsight Compute's number of the launch." }
-- kernel          = { type = "VARCHAR", null = true, doc = "Name of the kernel as Nsight Compute prints it." }
-- grid            = { type = "VARCHAR", null = true, doc = "Blocks as `(x, y, z)`." }
-- block           = { type = "VARCHAR", null = true, doc = "Threads of a block as `(x, y, z)`." }
-- compute_share   = { type = "DOUBLE", null = true, unit = "ratio", doc = "Share of the peak throughput of the SMs." }
-- memory_share    = { type = "DOUBLE", null = true, unit = "ratio", doc = "Share of the peak throughput of memory and caches." }
-- occupancy_share = { type = "DOUBLE", null = true, unit = "ratio", doc = "Achieved occupancy: active warps of those that an SM can hold." }
-- replay_ns       = { type = "BIGINT", null = true, unit = "ns", doc = "Duration under Nsight Compute, which fixes clock rates and replays kernels: not comparable with times in the trace." }
-- match           = { type = "VARCHAR", null = true, doc = "order: name, grid and block have as many launches in the trace, and this is the same one; shape: the trace has other numbers of them; null: the trace has none." }
-- kernel_id       = { type = "BIGINT", null = true, unit = "id", doc = "The launch in the trace if matched by order." }
-- trace_count     = { type = "BIGINT", unit = "count", doc = "Launches in the trace with this name, grid and block." }
-- trace_sum_ns    = { type = "BIGINT", null = true, unit = "ns", doc = "Sum of their durations." }
-- pass            = { type = "VARCHAR", null = true, doc = "Pass of their operators, as in `kernels`; null if they belong to several, or without a match." }
--
-- [changes]
-- 1 = "First version. Names match if the name in the trace begins with that of Nsight Compute, without spaces; a name without arguments matches every kernel of that function."
-- ///
WITH
  launches AS (
    SELECT
      run_id,
      rank,
      process,
      launch,
      min(kernel) AS kernel,
      min(grid_x) AS grid_x,
      min(grid_y) AS grid_y,
      min(grid_z) AS grid_z,
      min(block_x) AS block_x,
      min(block_y) AS block_y,
      min(block_z) AS block_z,
      max(value) FILTER (quantity = 'compute') / 100 AS compute_share,
      max(value) FILTER (quantity = 'memory') / 100 AS memory_share,
      max(value) FILTER (quantity = 'occupancy') / 100 AS occupancy_share,
      round(max(value) FILTER (quantity = 'duration'))::BIGINT AS replay_ns
    FROM kernel_metrics
    LEFT JOIN metric_rules AS rule USING (metric, unit)
    GROUP BY run_id, rank, process, launch
  ),
  named AS (
    SELECT
      run_id,
      rank,
      process,
      launch,
      kernel,
      grid_x,
      grid_y,
      grid_z,
      block_x,
      block_y,
      block_z,
      compute_share,
      memory_share,
      occupancy_share,
      replay_ns,
      replace(kernel, ' ', '') AS plain,
      regexp_extract(kernel, '([A-Za-z_][A-Za-z0-9_]*)$', 1) AS last_name,
      row_number() OVER (
        PARTITION BY run_id, rank, process, kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z
        ORDER BY launch
      ) AS number,
      count(*) OVER (
        PARTITION BY run_id, rank, process, kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z
      ) AS profiled
    FROM launches
  ),
  shapes AS (
    SELECT DISTINCT run_id, rank, process, kernel, plain, last_name, grid_x, grid_y, grid_z, block_x, block_y, block_z
    FROM named
  ),
  traced AS (
    SELECT
      shape.run_id,
      shape.rank,
      shape.process,
      shape.kernel,
      shape.grid_x,
      shape.grid_y,
      shape.grid_z,
      shape.block_x,
      shape.block_y,
      shape.block_z,
      list(kernels.event_id ORDER BY kernels.ts_ns, kernels.event_id) AS kernel_ids,
      count(*) AS trace_count,
      sum(kernels.dur_ns)::BIGINT AS trace_sum_ns,
      CASE WHEN count(DISTINCT kernels.pass) = 1 AND count(kernels.pass) = count(*) THEN min(kernels.pass) END AS pass
    FROM shapes AS shape
    JOIN kernels
      ON kernels.run_id = shape.run_id
      AND kernels.rank = shape.rank
      AND kernels.grid_x = shape.grid_x
      AND kernels.grid_y = shape.grid_y
      AND kernels.grid_z = shape.grid_z
      AND kernels.block_x = shape.block_x
      AND kernels.block_y = shape.block_y
      AND kernels.block_z = shape.block_z
      AND CASE
        WHEN shape.plain SIMILAR TO '.*[<(].*' THEN starts_with(replace(kernels.name, ' ', ''), shape.plain)
        ELSE string_split(kernels.short_name, '::')[-1] = shape.last_name
      END
    GROUP BY ALL
  )
SELECT
  named.run_id,
  named.rank,
  named.process,
  named.launch,
  named.kernel,
  format('({}, {}, {})', named.grid_x, named.grid_y, named.grid_z) AS grid,
  format('({}, {}, {})', named.block_x, named.block_y, named.block_z) AS block,
  named.compute_share,
  named.memory_share,
  named.occupancy_share,
  named.replay_ns,
  CASE
    WHEN traced.trace_count = named.profiled THEN 'order'
    WHEN traced.trace_count > 0 THEN 'shape'
  END AS match,
  CASE WHEN traced.trace_count = named.profiled THEN traced.kernel_ids[named.number] END AS kernel_id,
  coalesce(traced.trace_count, 0) AS trace_count,
  traced.trace_sum_ns,
  traced.pass
FROM named
LEFT JOIN traced
  ON traced.run_id = named.run_id
  AND traced.rank = named.rank
  AND traced.process IS NOT DISTINCT FROM named.process
  AND traced.kernel = named.kernel
  AND traced.grid_x = named.grid_x
  AND traced.grid_y = named.grid_y
  AND traced.grid_z = named.grid_z
  AND traced.block_x = named.block_x
  AND traced.block_y = named.block_y
  AND traced.block_z = named.block_z
