-- /// tw
-- kind     = "view"
-- name     = "execution_pairs"
-- version  = 1
-- summary  = "Nodes of execution traces and the events of the rank's trace with the same ID, whether or not their names agree."
-- requires = ["execution_nodes@1", "events@1"]
-- grain    = ["run_id", "rank", "node_id"]
-- order    = ["run_id", "rank", "node_id"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- node_id     = { type = "BIGINT", unit = "id", doc = "The node." }
-- event_id    = { type = "BIGINT", unit = "id", doc = "The operator or annotation with its ID." }
-- name        = { type = "VARCHAR", null = true, doc = "Name of the node." }
-- joined_by   = { type = "VARCHAR", doc = "Argument of the event that holds the ID: Record function id, or External id if no operator of the rank has the first." }
-- names_equal = { type = "BOOLEAN", doc = "True if node and event have the same name." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  nodes AS (
    SELECT run_id, rank, record_function, arg_min(node_id, node_id) AS node_id, arg_min(name, node_id) AS name
    FROM execution_nodes
    WHERE record_function IS NOT NULL
    GROUP BY run_id, rank, record_function
  ),
  recorded AS (
    SELECT
      events.run_id,
      events.rank,
      events.event_id,
      events.name,
      events.category,
      events.external_id,
      nullif(TRY_CAST(events.args ->> '$."Record function id"' AS BIGINT), 0) AS record_function
    FROM events
    SEMI JOIN nodes USING (run_id, rank)
    WHERE events.category IN ('cpu_op', 'user_annotation')
  ),
  keys AS (
    SELECT run_id, rank, bool_or(record_function IS NOT NULL) AS has_record_functions
    FROM recorded
    GROUP BY run_id, rank
  ),
  identified AS (
    SELECT
      recorded.run_id,
      recorded.rank,
      CASE WHEN keys.has_record_functions THEN recorded.record_function ELSE recorded.external_id END AS id,
      any_value(keys.has_record_functions) AS has_record_functions,
      min(recorded.event_id) AS event_id,
      arg_min(coalesce(recorded.name, ''), recorded.event_id) AS name
    FROM recorded
    JOIN keys USING (run_id, rank)
    -- External IDs of annotations belong to another sequence of numbers.
    WHERE keys.has_record_functions OR recorded.category = 'cpu_op'
    GROUP BY ALL
  )
SELECT
  nodes.run_id,
  nodes.rank,
  nodes.node_id,
  identified.event_id,
  nodes.name,
  CASE WHEN identified.has_record_functions THEN 'Record function id' ELSE 'External id' END AS joined_by,
  coalesce(nodes.name, '') = identified.name AS names_equal
FROM nodes
JOIN identified
  ON identified.run_id = nodes.run_id AND identified.rank = nodes.rank AND identified.id = nodes.record_function
