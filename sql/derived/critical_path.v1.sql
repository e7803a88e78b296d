-- /// tw
-- kind     = "table"
-- name     = "critical_path"
-- version  = 1
-- summary  = "Critical path of a scope: the chain of dependent activities that determines its length."
-- requires = ["critical_path_nodes@1", "critical_edges@1", "critical_nodes@1"]
-- derived  = "critical_path"
-- grain    = ["run_id", "rank", "scope", "position"]
-- order    = ["run_id", "rank", "scope", "position"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- scope      = { type = "VARCHAR", doc = "The scope." }
-- position   = { type = "BIGINT", doc = "Position on the path, starting at 1." }
-- from_node  = { type = "BIGINT", doc = "Start of the segment." }
-- to_node    = { type = "BIGINT", doc = "End of the segment, where the next one starts." }
-- type       = { type = "VARCHAR", doc = "Type of dependency, as in critical_edges." }
-- category   = { type = "VARCHAR", doc = "Category of the time, as in critical_edges." }
-- evidence   = { type = "VARCHAR", doc = "Evidence for the dependency: recorded, name or inferred." }
-- event_id   = { type = "BIGINT", unit = "id", null = true, doc = "Operator, host call or GPU activity that the time is attributed to; null between them." }
-- start_ns   = { type = "BIGINT", signed = true, unit = "ts", doc = "Start of the segment." }
-- segment_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the segment; the segments of a scope sum to its length." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  walk.run_id,
  walk.rank,
  walk.scope,
  walk.position,
  edge.from_node,
  edge.to_node,
  edge.type,
  edge.category,
  edge.evidence,
  edge.event_id,
  node.ts_ns AS start_ns,
  edge.weight_ns AS segment_ns
FROM critical_path_nodes AS walk
JOIN critical_edges AS edge ON edge.scope = walk.scope AND edge.to_node = walk.node AND edge.is_limiting
JOIN critical_nodes AS node ON node.scope = walk.scope AND node.node = edge.from_node
WHERE edge.type <> 'end'
