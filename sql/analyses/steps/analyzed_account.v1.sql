-- /// tw
-- kind     = "analysis"
-- name     = "analyzed_account"
-- version  = 1
-- summary  = "What the analyzed time of each rank is spent on, with the finding rules that can explain it."
-- requires = ["analyzed_segments@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "category"]
-- per      = "step"
-- order    = ["run_id", "rank", "-category_ns", "category"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- category     = { type = "VARCHAR", doc = "computation, communication, memory or other: the kind of GPU activity that runs, the first of these; or idle." }
-- category_ns  = { type = "BIGINT", unit = "ns", aggregate = "sum", doc = "Time of it; the rows of a rank sum to analyzed_ns." }
-- analyzed_ns  = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the complete steps of the rank, or its GPU window if there are none." }
-- share        = { type = "DOUBLE", unit = "ratio", doc = "category_ns / analyzed_ns." }
-- what         = { type = "VARCHAR", doc = "The category in words, as in: 30 % of the time is …." }
-- explained_by = { type = "VARCHAR", null = true, doc = "Names of the rules that can explain it, separated by commas; empty if there are none. Null for computation, which needs no explanation." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  segment.run_id,
  segment.rank,
  segment.kind AS category,
  sum(segment.segment_ns)::BIGINT AS category_ns,
  any_value(segment.analyzed_ns) AS analyzed_ns,
  category_ns / any_value(segment.analyzed_ns) AS share,
  any_value(words.what) AS what,
  any_value(words.explained_by) AS explained_by
FROM analyzed_segments AS segment
JOIN (
  VALUES
    ('computation', 'computation', NULL),
    ('communication', 'exposed communication', 'exposed_comm, slow_rank, unbalanced_experts, slow_collectives, slow_network, pipeline_wait, collective_stuck'),
    ('memory', 'exposed copies', 'exposed_copies, pageable_copies'),
    ('other', 'other GPU activities', ''),
    ('idle', 'idle time of the GPU', 'host_bound, launch_bound, slow_decode, input_bound, blocking_syncs, blocking_copies, allocator_calls, startup, recompilation, host_blocked, low_gpu_use')
) AS words (kind, what, explained_by)
  ON words.kind = segment.kind
GROUP BY segment.run_id, segment.rank, segment.kind
