-- /// tw
-- kind     = "view"
-- name     = "collectives_filled"
-- version  = 1
-- summary  = "Collectives per rank; what the trace does not record about them comes from the execution trace of the rank."
-- requires = ["collectives@1", "kernels@1", "op_graph@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- event_id        = { type = "BIGINT", unit = "id", doc = "The collective, as in `collectives`." }
-- node_id         = { type = "BIGINT", unit = "id", null = true, doc = "The node of the execution trace that launched it." }
-- collective      = { type = "VARCHAR", doc = "all_reduce, all_gather, …" }
-- process_group   = { type = "VARCHAR", null = true, doc = "Process group name." }
-- group_size      = { type = "BIGINT", unit = "count", null = true, doc = "Number of ranks in the process group." }
-- group_ranks     = { type = "VARCHAR", null = true, doc = "Ranks of the process group." }
-- sequence        = { type = "BIGINT", unit = "id", null = true, doc = "Number of the collective." }
-- dtype           = { type = "VARCHAR", null = true, doc = "Element type." }
-- in_elements     = { type = "BIGINT", unit = "count", null = true, doc = "Number of input elements on this rank." }
-- out_elements    = { type = "BIGINT", unit = "count", null = true, doc = "Number of output elements on this rank." }
-- group_filled    = { type = "BOOLEAN", doc = "True if the process group is from the execution trace." }
-- sequence_filled = { type = "BOOLEAN", doc = "True if the sequence number is from the execution trace." }
--
-- [changes]
-- 1 = "First version. A value of the trace is never replaced."
-- ///
WITH
  called AS (
    -- What a single operator launched: of several collectives in it, the numbers belong to none in particular.
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      node.node_id,
      node.process_group,
      node.group_size,
      node.group_ranks,
      node.collective_seq,
      node.dtype,
      node.in_elements,
      node.out_elements,
      count(*) OVER (PARTITION BY kernels.run_id, kernels.rank, node.node_id) AS launched
    FROM kernels
    JOIN op_graph AS node
      ON node.run_id = kernels.run_id AND node.rank = kernels.rank AND node.event_id = kernels.op_id
    WHERE kernels.kind = 'communication' AND node.collective IS NOT NULL
  )
SELECT
  each.run_id,
  each.rank,
  each.event_id,
  called.node_id,
  each.collective,
  coalesce(each.process_group, called.process_group) AS process_group,
  coalesce(each.group_size, called.group_size) AS group_size,
  coalesce(each.group_ranks, replace(called.group_ranks, ' ', '')) AS group_ranks,
  coalesce(each.sequence, called.collective_seq) AS sequence,
  coalesce(each.dtype, called.dtype) AS dtype,
  coalesce(each.in_elements, called.in_elements) AS in_elements,
  coalesce(each.out_elements, called.out_elements) AS out_elements,
  each.process_group IS NULL AND called.process_group IS NOT NULL AS group_filled,
  each.sequence IS NULL AND called.collective_seq IS NOT NULL AS sequence_filled
FROM collectives AS each
LEFT JOIN called
  ON called.run_id = each.run_id AND called.rank = each.rank AND called.event_id = each.event_id AND called.launched = 1
