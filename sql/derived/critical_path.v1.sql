-- /// tw
-- kind     = "table"
-- name     = "critical_path"
-- version  = 1
-- summary  = "The critical path of a scope: what every moment from its start to its end was spent on, for the end to be when it was."
-- requires = ["critical_walk@1", "critical_edges@1", "critical_nodes@1"]
-- derived  = "critical_path"
-- grain    = ["run_id", "rank", "scope", "position"]
-- order    = ["run_id", "rank", "scope", "position"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- scope     = { type = "VARCHAR", doc = "The scope." }
-- position  = { type = "BIGINT", doc = "Place on the path, from 1." }
-- from_node = { type = "BIGINT", doc = "Where this part begins." }
-- to_node   = { type = "BIGINT", doc = "Where it ends, and the next begins." }
-- type      = { type = "VARCHAR", doc = "The kind of dependency, as in critical_edges." }
-- category  = { type = "VARCHAR", doc = "What the time is, as in critical_edges." }
-- evidence  = { type = "VARCHAR", doc = "What is known of the dependency: recorded, name or inferred." }
-- event_id  = { type = "BIGINT", unit = "id", null = true, doc = "What the time belongs to: operator, host call or GPU row; null between them." }
-- start_ns  = { type = "BIGINT", signed = true, unit = "ts", doc = "When this part begins." }
-- part_ns   = { type = "BIGINT", unit = "ns", doc = "How long it is; the parts of a scope add up to its length." }
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
  edge.weight_ns AS part_ns
FROM critical_walk AS walk
JOIN critical_edges AS edge ON edge.scope = walk.scope AND edge.to_node = walk.node AND edge.decides
JOIN critical_nodes AS node ON node.scope = walk.scope AND node.node = edge.from_node
WHERE edge.type <> 'end'
