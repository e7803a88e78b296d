-- /// tw
-- kind     = "view"
-- name     = "op_graph"
-- version  = 1
-- summary  = "Operators and annotations of a trace with their nodes in the execution trace: parents, inputs, outputs, collectives."
-- requires = ["execution_nodes@1", "execution_pairs@1", "execution_matches@1"]
-- grain    = ["run_id", "rank", "node_id"]
-- order    = ["run_id", "rank", "node_id"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- node_id        = { type = "BIGINT", unit = "id", doc = "The node." }
-- event_id       = { type = "BIGINT", unit = "id", doc = "The operator or annotation." }
-- name           = { type = "VARCHAR", null = true, doc = "Its name." }
-- parent_node    = { type = "BIGINT", unit = "id", null = true, doc = "The node that called it." }
-- inputs         = { type = "JSON", null = true, doc = "Inputs." }
-- outputs        = { type = "JSON", null = true, doc = "Outputs." }
-- output_shapes  = { type = "JSON", null = true, doc = "Shapes of the outputs." }
-- input_tensors  = { type = "BIGINT[]", null = true, doc = "Tensor IDs among the inputs." }
-- output_tensors = { type = "BIGINT[]", null = true, doc = "Tensor IDs among the outputs." }
-- collective     = { type = "VARCHAR", null = true, doc = "Name of the collective." }
-- process_group  = { type = "VARCHAR", null = true, doc = "Name of its process group." }
-- group_size     = { type = "BIGINT", unit = "count", null = true, doc = "Number of ranks in the process group." }
-- group_ranks    = { type = "VARCHAR", null = true, doc = "Ranks of the process group." }
-- collective_seq = { type = "BIGINT", unit = "id", null = true, doc = "Number of the collective." }
-- dtype          = { type = "VARCHAR", null = true, doc = "Element type of the collective." }
-- in_elements    = { type = "BIGINT", unit = "count", null = true, doc = "Number of input elements of the collective." }
-- out_elements   = { type = "BIGINT", unit = "count", null = true, doc = "Number of output elements of the collective." }
--
-- [changes]
-- 1 = "First version. Only ranks whose files are of one run, and nodes with the same name as their event."
-- ///
SELECT
  node.run_id,
  node.rank,
  node.node_id,
  pair.event_id,
  node.name,
  node.parent_node,
  node.inputs,
  node.outputs,
  node.output_shapes,
  node.input_tensors,
  node.output_tensors,
  node.collective,
  node.process_group,
  node.group_size,
  node.group_ranks,
  node.collective_seq,
  node.dtype,
  node.in_elements,
  node.out_elements
FROM execution_pairs AS pair
JOIN execution_matches AS matched
  ON matched.run_id = pair.run_id AND matched.rank = pair.rank AND matched.is_joined
JOIN execution_nodes AS node
  ON node.run_id = pair.run_id AND node.rank = pair.rank AND node.node_id = pair.node_id
WHERE pair.names_equal
