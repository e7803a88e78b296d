-- /// tw
-- kind     = "analysis"
-- name     = "source_summary"
-- version  = 1
-- summary  = "GPU time by the Python function that launched it; backward counts for the function of its forward."
-- requires = ["kernels@1", "source_frames@1", "events@1", "kernel_modules@1"]
-- optional = ["kernel_modules"]
-- needs    = ["gpu", "stacks"]
-- grain    = ["run_id", "rank", "source"]
-- per      = "window"
-- order    = ["run_id", "rank", "-gpu_sum_ns", "source"]
--
-- [params]
-- libraries = { type = "BOOLEAN", default = true, doc = "With functions of libraries such as transformers; otherwise of the program only." }
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- source      = { type = "VARCHAR", null = true, doc = "File, line where the function begins, and function, as in `source_frames`: the innermost one around the launch. Null if there is none, or if the launch is unknown." }
-- count       = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "GPU activities." }
-- gpu_sum_ns  = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of their durations; over all rows, that of all GPU activities of the rank." }
-- backward_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Part of it in backward." }
-- share       = { type = "DOUBLE", unit = "ratio", doc = "gpu_sum_ns as a share of the rank's total." }
-- kernel      = { type = "VARCHAR", null = true, doc = "The activity with the largest sum of durations." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  launched AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.name,
      kernels.dur_ns,
      coalesce(module.forward_id, kernels.runtime_id) AS host_id,
      module.forward_id IS NOT NULL AS is_backward
    FROM kernels
    LEFT JOIN kernel_modules AS module
      ON module.run_id = kernels.run_id AND module.rank = kernels.rank AND module.kernel_id = kernels.event_id
  ),
  host AS (
    SELECT run_id, rank, event_id AS host_id, pre
    FROM events
    SEMI JOIN (SELECT run_id, rank, host_id AS event_id FROM launched) AS called USING (run_id, rank, event_id)
    WHERE pre IS NOT NULL
  ),
  framed AS (
    SELECT host.run_id, host.rank, host.host_id, arg_max(frame.source, frame.pre) AS source
    FROM host
    JOIN source_frames AS frame
      ON frame.run_id = host.run_id AND frame.rank = host.rank AND host.pre BETWEEN frame.pre AND frame.post
    WHERE $libraries OR NOT frame.is_library
    GROUP BY host.run_id, host.rank, host.host_id
  ),
  named AS (
    SELECT
      run_id,
      rank,
      source,
      name,
      count(*) AS count,
      sum(dur_ns)::BIGINT AS gpu_sum_ns,
      coalesce(sum(dur_ns) FILTER (is_backward), 0)::BIGINT AS backward_ns
    FROM launched
    LEFT JOIN framed USING (run_id, rank, host_id)
    GROUP BY run_id, rank, source, name
  )
SELECT
  run_id,
  rank,
  source,
  sum(count)::BIGINT AS count,
  sum(gpu_sum_ns)::BIGINT AS gpu_sum_ns,
  sum(backward_ns)::BIGINT AS backward_ns,
  sum(gpu_sum_ns) / nullif(sum(sum(gpu_sum_ns)) OVER (PARTITION BY run_id, rank), 0) AS share,
  arg_max(name, (gpu_sum_ns, name)) AS kernel
FROM named
GROUP BY run_id, rank, source
