-- /// tw
-- kind     = "analysis"
-- name     = "execution_trace"
-- version  = 1
-- summary  = "Whether the execution trace of each rank belongs to its trace, and what it adds: operators with inputs and outputs, process groups and numbers of collectives."
-- requires = ["execution_nodes@1", "execution_matches@1", "op_graph@1", "collectives_filled@1"]
-- needs    = ["execution_nodes"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id                = { type = "VARCHAR", doc = "The run." }
-- rank                  = { type = "INTEGER", doc = "The rank." }
-- node_count            = { type = "BIGINT", unit = "count", doc = "Nodes of the execution trace." }
-- joined_by             = { type = "VARCHAR", null = true, doc = "Argument of the events that holds the ID of the node; null if no ID is in both." }
-- id_count              = { type = "BIGINT", unit = "count", doc = "IDs in both." }
-- equal_share           = { type = "DOUBLE", unit = "ratio", null = true, better = "higher", doc = "Share of these IDs with the same name in both; below 99 % the files are not of the same run." }
-- is_joined             = { type = "BOOLEAN", doc = "True if the files are of the same run." }
-- op_count              = { type = "BIGINT", unit = "count", doc = "Operators and annotations of the trace with a node (`op_graph`)." }
-- collective_count      = { type = "BIGINT", unit = "count", doc = "Collectives of the trace." }
-- group_filled_count    = { type = "BIGINT", unit = "count", doc = "Those whose process group is only in the execution trace (`collectives_filled`)." }
-- sequence_filled_count = { type = "BIGINT", unit = "count", doc = "Those whose number is only in the execution trace." }
--
-- [changes]
-- 1 = "First version. Process groups and numbers of collectives are untested on real data."
-- ///
WITH
  nodes AS (
    SELECT run_id, rank, count(*) AS node_count
    FROM execution_nodes
    GROUP BY run_id, rank
  ),
  ops AS (
    SELECT run_id, rank, count(*) AS op_count
    FROM op_graph
    GROUP BY run_id, rank
  ),
  filled AS (
    SELECT
      run_id,
      rank,
      count(*) AS collective_count,
      count(*) FILTER (group_filled) AS group_filled_count,
      count(*) FILTER (sequence_filled) AS sequence_filled_count
    FROM collectives_filled
    GROUP BY run_id, rank
  )
SELECT
  nodes.run_id,
  nodes.rank,
  nodes.node_count,
  matched.joined_by,
  coalesce(matched.id_count, 0) AS id_count,
  matched.equal_share,
  coalesce(matched.is_joined, FALSE) AS is_joined,
  coalesce(ops.op_count, 0) AS op_count,
  coalesce(filled.collective_count, 0) AS collective_count,
  coalesce(filled.group_filled_count, 0) AS group_filled_count,
  coalesce(filled.sequence_filled_count, 0) AS sequence_filled_count
FROM nodes
LEFT JOIN execution_matches AS matched USING (run_id, rank)
LEFT JOIN ops USING (run_id, rank)
LEFT JOIN filled USING (run_id, rank)
