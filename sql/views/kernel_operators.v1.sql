-- /// tw
-- kind     = "view"
-- name     = "kernel_operators"
-- version  = 1
-- summary  = "Each GPU activity with every operator enclosing its launch."
-- requires = ["kernels@1", "operators@1", "runtime@1"]
-- grain    = ["run_id", "rank", "kernel_id", "op_id"]
-- order    = ["run_id", "rank", "kernel_id", "level"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- kernel_id = { type = "BIGINT", unit = "id", doc = "The GPU activity. Activities with an unknown launch or without an enclosing operator have no row." }
-- op_id     = { type = "BIGINT", unit = "id", doc = "An operator of the launching thread that was open when the call began." }
-- name      = { type = "VARCHAR", null = true, doc = "Operator name." }
-- level     = { type = "BIGINT", unit = "depth", doc = "Nesting level among operators; higher is deeper." }
-- innermost = { type = "BOOLEAN", doc = "True for the innermost operator: op_id of kernels." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  op AS MATERIALIZED (
    SELECT run_id, rank, event_id, name, level, parent_id, ts_ns + dur_ns AS end_ns
    FROM operators
  ),
  launched AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id AS kernel_id,
      kernels.op_id AS leaf_id,
      runtime.ts_ns AS call_ns
    FROM kernels
    JOIN runtime
      ON runtime.run_id = kernels.run_id AND runtime.rank = kernels.rank AND runtime.event_id = kernels.runtime_id
    WHERE kernels.op_id IS NOT NULL
  ),
  chain AS (
    SELECT DISTINCT run_id, rank, leaf_id, leaf_id AS op_id
    FROM launched
    UNION ALL
    SELECT chain.run_id, chain.rank, chain.leaf_id, op.parent_id AS op_id
    FROM chain
    JOIN op ON op.run_id = chain.run_id AND op.rank = chain.rank AND op.event_id = chain.op_id
    WHERE op.parent_id IS NOT NULL
  )
SELECT
  launched.run_id,
  launched.rank,
  launched.kernel_id,
  chain.op_id,
  op.name,
  op.level,
  chain.op_id = chain.leaf_id AS innermost
FROM launched
JOIN chain USING (run_id, rank, leaf_id)
JOIN op ON op.run_id = chain.run_id AND op.rank = chain.rank AND op.event_id = chain.op_id
WHERE op.end_ns > launched.call_ns
