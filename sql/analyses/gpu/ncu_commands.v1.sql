-- /// tw
-- kind     = "analysis"
-- name     = "ncu_commands"
-- version  = 1
-- summary  = "The commands with which Nsight Compute profiles the kernels that take the most time, each at a launch of median duration."
-- requires = ["kernels@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "kernel"]
-- order    = ["run_id", "rank", "-gpu_sum_ns", "kernel"]
--
-- [params]
-- per_rank = { type = "BIGINT", unit = "count", default = 5, min = 1, doc = "Number of kernels per rank." }
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- kernel      = { type = "VARCHAR", doc = "Name of the function, by which Nsight Compute selects launches." }
-- count       = { type = "BIGINT", unit = "count", doc = "Launches of the function in the trace." }
-- gpu_sum_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "Sum of their durations." }
-- name        = { type = "VARCHAR", doc = "The kernel of that function, with its arguments, that takes the most time." }
-- grid        = { type = "VARCHAR", null = true, doc = "Its most expensive number of blocks as `(x, y, z)`." }
-- launch_skip = { type = "BIGINT", unit = "count", doc = "Launches of the function before the one to profile: of this name and grid, the one with the median duration. Counted from the start of the trace: add those before it." }
-- dur_ns      = { type = "BIGINT", unit = "ns", better = "lower", doc = "Duration of that launch." }
-- command     = { type = "VARCHAR", doc = "The command; append the command line of the program." }
--
-- [changes]
-- 1 = "First version. CUDA kernels whose function has a plain name."
-- ///
WITH
  launched AS (
    SELECT
      run_id,
      rank,
      name,
      string_split(short_name, '::')[-1] AS kernel,
      format('({}, {}, {})', grid_x, grid_y, grid_z) AS grid,
      dur_ns,
      row_number() OVER (
        PARTITION BY run_id, rank, string_split(short_name, '::')[-1]
        ORDER BY ts_ns, event_id
      ) - 1 AS launch_skip
    FROM kernels
    WHERE kind = 'computation' AND NOT starts_with(coalesce(launch_api, ''), 'hip')
      AND regexp_full_match(string_split(short_name, '::')[-1], '[A-Za-z_][A-Za-z0-9_]*')
  ),
  functions AS (
    SELECT run_id, rank, kernel, count(*) AS count, sum(dur_ns)::BIGINT AS gpu_sum_ns
    FROM launched
    GROUP BY run_id, rank, kernel
    QUALIFY row_number() OVER (PARTITION BY run_id, rank ORDER BY gpu_sum_ns DESC, kernel) <= $per_rank
  ),
  shapes AS (
    SELECT
      run_id,
      rank,
      kernel,
      name,
      grid,
      list({dur_ns: dur_ns, launch_skip: launch_skip} ORDER BY dur_ns, launch_skip) AS launches
    FROM launched
    GROUP BY run_id, rank, kernel, name, grid
    QUALIFY
      row_number() OVER (
        PARTITION BY run_id, rank, kernel
        ORDER BY sum(dur_ns) DESC, name, grid
      ) = 1
  )
SELECT
  functions.run_id,
  functions.rank,
  functions.kernel,
  functions.count,
  functions.gpu_sum_ns,
  shapes.name,
  shapes.grid,
  shapes.launches[(len(shapes.launches) + 1) // 2].launch_skip AS launch_skip,
  shapes.launches[(len(shapes.launches) + 1) // 2].dur_ns AS dur_ns,
  'ncu --kernel-name ' || functions.kernel || ' --launch-skip '
    || shapes.launches[(len(shapes.launches) + 1) // 2].launch_skip
    || ' --launch-count 1 --set full --csv --page raw' AS command
FROM functions
JOIN shapes USING (run_id, rank, kernel)
