-- /// tw
-- kind     = "analysis"
-- name     = "snapshot_allocations"
-- version  = 1
-- summary  = "Each allocation in a memory snapshot with its lifetime, call stack and purpose: the data for a plot of memory over time."
-- requires = ["snapshot_lifetimes@1", "snapshot_stacks@1", "events@1"]
-- optional = ["events"]
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
-- category    = { type = "VARCHAR", doc = "static (allocated before the first entry and active at the end), else backward, optimizer, collective, forward, data, setup or other by the call stack; unknown without a stack. What the stack leaves as other or unknown is backward or optimizer if the rank has a trace in which autograd's engine or an optimizer step runs at that time: autograd's threads have no Python stack." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  runs_at AS (
    SELECT
      run_id,
      rank,
      ts_ns AS start_ns,
      max(ts_ns + dur_ns) AS end_ns,
      min(CASE WHEN starts_with(name, 'Optimizer.') THEN 'optimizer' ELSE 'backward' END) AS category
    FROM events
    WHERE
      dur_ns IS NOT NULL
      AND (
        starts_with(name, 'autograd::engine::evaluate_function') AND category = 'cpu_op'
        OR starts_with(name, 'Optimizer.step#') AND category IN ('cpu_op', 'user_annotation')
      )
    GROUP BY run_id, rank, ts_ns
  ),
  placed AS (
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
      lifetime.born_before,
      CASE WHEN lifetime.from_ns < runs_at.end_ns THEN runs_at.category END AS traced
    FROM snapshot_lifetimes AS lifetime
    ASOF LEFT JOIN runs_at
      ON runs_at.run_id = lifetime.run_id AND runs_at.rank = lifetime.rank AND runs_at.start_ns <= lifetime.from_ns
  )
SELECT
  placed.run_id,
  placed.rank,
  placed.device,
  placed.address,
  placed.bytes,
  placed.from_entry,
  placed.to_entry,
  placed.from_ns,
  placed.to_ns,
  placed.stack_id,
  stack.top_frame,
  CASE
    WHEN placed.born_before AND placed.to_entry IS NULL THEN 'static'
    WHEN coalesce(stack.category, 'other') = 'other' AND placed.traced IS NOT NULL THEN placed.traced
    ELSE coalesce(stack.category, 'unknown')
  END AS category
FROM placed
LEFT JOIN snapshot_stacks AS stack USING (run_id, rank, stack_id)
