-- /// tw
-- kind     = "analysis"
-- name     = "critical_path_breakdown"
-- version  = 1
-- summary  = "What the critical path of each step, or of another derived scope, is made of."
-- requires = ["critical_path@1"]
-- needs    = ["critical_path"]
-- grain    = ["run_id", "rank", "scope", "category"]
-- order    = ["run_id", "rank", "scope", "-path_ns", "category"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- scope       = { type = "VARCHAR", doc = "`step N`, `annotation NAME#K` or `trace`: from its start on the host to its end there, or of the last GPU row launched in it." }
-- category    = { type = "VARCHAR", doc = "host: in operators and host calls; host_gap: on the host outside of both; launch: from the start of a launching call to that of its GPU row; computation, communication, memory, other: GPU rows; kernel_gap: between a GPU row and the next that waited for it; sync: from the end of a GPU row to the return of the call that waited for it; earlier: until work launched before the scope was done; unknown_wait: nothing recorded explains it." }
-- parts       = { type = "BIGINT", unit = "count", doc = "Parts of the path of that category." }
-- path_ns     = { type = "BIGINT", unit = "ns", better = "lower", doc = "Their time; the categories of a scope add up to its length." }
-- share       = { type = "DOUBLE", unit = "ratio", null = true, doc = "path_ns over the length of the scope; null where that is 0." }
-- inferred_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "Of path_ns, what follows from times alone: that one thing began right after another, or that nothing explains it." }
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
      count(*) AS parts,
      sum(part_ns)::BIGINT AS path_ns,
      coalesce(sum(part_ns) FILTER (evidence = 'inferred'), 0)::BIGINT AS inferred_ns
    FROM critical_path
    GROUP BY run_id, rank, scope, category
  )
SELECT
  run_id,
  rank,
  scope,
  category,
  parts,
  path_ns,
  path_ns / nullif((sum(path_ns) OVER (PARTITION BY run_id, rank, scope))::BIGINT, 0) AS share,
  inferred_ns
FROM split
