-- /// tw
-- kind     = "view"
-- name     = "host_occurrences"
-- version  = 1
-- summary  = "Slices of the training thread within the analyzed interval with their self time, on ranks without GPU activity."
-- requires = ["host_segments@1", "analyzed_intervals@1", "kernels@1"]
-- grain    = ["run_id", "rank", "slice_id"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank; ranks with GPU activity have no rows." }
-- slice_id    = { type = "BIGINT", unit = "id", null = true, doc = "The slice, as in `host_segments`; null for all unrecorded time." }
-- label       = { type = "VARCHAR", doc = "Its name, or unknown." }
-- is_loading  = { type = "BOOLEAN", doc = "True if it loads data." }
-- is_operator = { type = "BOOLEAN", doc = "True if it is an operator with a name." }
-- is_copy     = { type = "BOOLEAN", doc = "True if it is an operator that copies, converts or joins tensors." }
-- step        = { type = "BIGINT", unit = "id", null = true, doc = "The step in which it starts; null outside of steps." }
-- start_ns    = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of its first segment." }
-- end_ns      = { type = "BIGINT", unit = "ts", signed = true, doc = "End of its last segment." }
-- self_ns     = { type = "BIGINT", unit = "ns", doc = "Duration of its segments." }
-- steps       = { type = "BIGINT", unit = "count", doc = "Complete steps in the analyzed interval; 0 if there are none." }
-- analyzed_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the analyzed interval." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  span.run_id,
  span.rank,
  host.slice_id,
  coalesce(any_value(host.name), 'unknown') AS label,
  bool_and(host.category = 'data_loading') AS is_loading,
  bool_and(host.category = 'operator' AND host.name IS NOT NULL) AS is_operator,
  coalesce(bool_and(host.category = 'operator' AND regexp_matches(host.name, '^aten::(copy_|_to_copy|to|clone|contiguous|cat|stack|_stack|_cat)$')), FALSE) AS is_copy,
  arg_min(host.step, host.start_ns) AS step,
  min(host.start_ns) AS start_ns,
  max(host.start_ns + host.segment_ns) AS end_ns,
  sum(host.segment_ns)::BIGINT AS self_ns,
  span.steps,
  span.analyzed_ns
FROM host_segments AS host
JOIN analyzed_intervals AS span USING (run_id, rank)
ANTI JOIN (SELECT DISTINCT run_id, rank FROM kernels) AS gpu ON gpu.run_id = host.run_id AND gpu.rank = host.rank
WHERE host.start_ns >= span.start_ns AND host.start_ns < span.end_ns
GROUP BY span.run_id, span.rank, span.steps, span.analyzed_ns, host.slice_id
