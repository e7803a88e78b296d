-- /// tw
-- kind     = "analysis"
-- name     = "critical_path_breakdown"
-- version  = 1
-- summary  = "Critical path of each step or other derived scope, by category."
-- requires = ["critical_path@1"]
-- needs    = ["critical_path"]
-- grain    = ["run_id", "rank", "scope", "category"]
-- order    = ["run_id", "rank", "scope", "is_explained", "-path_ns", "category"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- scope       = { type = "VARCHAR", doc = "`step N`, `annotation NAME#K` or `trace`: from its start on the host to its end there, or to the end of the last GPU activity launched in it." }
-- category    = { type = "VARCHAR", doc = "host: in operators and host calls; host_gap: on the host outside of both; launch: from the start of a launch call to the start of its GPU activity; computation, communication, memory, other: GPU activities; kernel_gap: between a GPU activity and the next one that waited for it; sync: from the end of a GPU activity to the return of the call that waited for it; earlier: until work launched before the scope was done; unknown_wait: no recorded dependency explains it." }
-- segments    = { type = "BIGINT", unit = "count", doc = "Number of segments of the path in that category." }
-- path_ns     = { type = "BIGINT", unit = "ns", better = "lower", doc = "Their total time; the categories of a scope sum to its duration." }
-- share       = { type = "DOUBLE", unit = "ratio", null = true, doc = "path_ns as a share of the scope's duration; null if that is 0." }
-- inferred_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "Part of path_ns that is inferred from times alone: something began right after something else, or nothing explains the wait." }
-- is_explained = { type = "BOOLEAN", doc = "False for earlier and unknown_wait, which come first: no recorded dependency within the scope explains them." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  split AS (
    SELECT
      run_id,
      rank,
      scope,
      category,
      count(*) AS segments,
      sum(segment_ns)::BIGINT AS path_ns,
      coalesce(sum(segment_ns) FILTER (evidence = 'inferred'), 0)::BIGINT AS inferred_ns
    FROM critical_path
    GROUP BY run_id, rank, scope, category
  )
SELECT
  run_id,
  rank,
  scope,
  category,
  segments,
  path_ns,
  path_ns / nullif((sum(path_ns) OVER (PARTITION BY run_id, rank, scope))::BIGINT, 0) AS share,
  inferred_ns,
  category NOT IN ('earlier', 'unknown_wait') AS is_explained
FROM split
