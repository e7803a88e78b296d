-- /// tw
-- kind     = "analysis"
-- name     = "snapshot_allocations"
-- version  = 1
-- summary  = "Each allocation in a memory snapshot with its lifetime, call stack and purpose: what a picture of memory over time draws."
-- requires = ["snapshot_lifetimes@1", "snapshot_stacks@1"]
-- needs    = ["snapshot"]
-- grain    = ["run_id", "rank", "device", "address", "from_entry"]
-- order    = ["run_id", "rank", "device", "-bytes", "from_entry", "address"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- device      = { type = "BIGINT", unit = "id", doc = "The device." }
-- address     = { type = "BIGINT", unit = "id", doc = "Address of the block." }
-- bytes       = { type = "BIGINT", unit = "bytes", better = "lower", doc = "Bytes requested." }
-- from_entry  = { type = "BIGINT", unit = "id", null = true, doc = "The entry that allocated it; null if it was allocated before the first entry." }
-- to_entry    = { type = "BIGINT", unit = "id", null = true, doc = "The entry that freed it; null if it is active at the end." }
-- from_ns     = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "When it was allocated; null if unknown." }
-- to_ns       = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "When it was freed; null if unknown or not freed." }
-- stack_id    = { type = "BIGINT", unit = "id", null = true, doc = "Call stack of the allocation, see snapshot_frames; null if not recorded or lost." }
-- top_frame   = { type = "VARCHAR", null = true, doc = "Innermost Python frame outside of PyTorch as `file:line function`; null without a stack." }
-- category    = { type = "VARCHAR", doc = "static (allocated before the first entry and active at the end), else backward, optimizer, collective, forward, data, setup or other by the call stack; unknown without a stack." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  lifetime.run_id,
  lifetime.rank,
  lifetime.device,
  lifetime.address,
  lifetime.bytes,
  lifetime.from_entry,
  lifetime.to_entry,
  lifetime.from_ns,
  lifetime.to_ns,
  lifetime.stack_id,
  stack.top_frame,
  CASE
    WHEN lifetime.born_before AND lifetime.to_entry IS NULL THEN 'static'
    ELSE coalesce(stack.category, 'unknown')
  END AS category
FROM snapshot_lifetimes AS lifetime
LEFT JOIN snapshot_stacks AS stack
  ON stack.run_id = lifetime.run_id AND stack.rank = lifetime.rank AND stack.stack_id = lifetime.stack_id
