-- /// tw
-- kind     = "view"
-- name     = "kernel_work"
-- version  = 1
-- summary  = "The module of each GPU activity, and the operator with a rule whose work it does."
-- requires = ["kernels@1", "events@1", "op_work@1", "kernel_modules@1", "graph_nodes@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- event_id    = { type = "BIGINT", unit = "id", doc = "The GPU activity." }
-- module_path = { type = "VARCHAR", doc = "Its module, of a replayed graph that of the capture; (communication), (optimizer), (gradient accumulation) or (outside any module)." }
-- work_id     = { type = "BIGINT", unit = "id", null = true, doc = "The operator in `op_work` that encloses its launch; null without one, and for communication." }
-- family      = { type = "VARCHAR", null = true, doc = "Family of that operator: gemm, conv, attention, norm, softmax, elementwise, embedding, optimizer, copy or triton." }
-- work_unit   = { type = "VARCHAR", null = true, doc = "What its work is counted in: flop, or bytes if it has no FLOP; null if its work is not known." }
-- work        = { type = "BIGINT", null = true, doc = "Hardware FLOP, or bytes read and written, of the operator if this is its main kernel, 0 for its other kernels; null without work_unit." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  counted AS (
    SELECT
      op_work.run_id,
      op_work.rank,
      op_work.event_id AS work_id,
      op_work.family,
      op_work.main_kernel_id,
      CASE
        WHEN op_work.hardware_flop > 0 THEN 'flop'
        WHEN op_work.read_bytes + op_work.write_bytes > 0 THEN 'bytes'
      END AS work_unit,
      CASE
        WHEN op_work.hardware_flop > 0 THEN op_work.hardware_flop
        ELSE op_work.read_bytes + op_work.write_bytes
      END AS amount,
      events.pre,
      events.post
    FROM op_work
    JOIN events USING (run_id, rank, event_id)
    WHERE op_work.kernel_count > 0
  ),
  launched AS (
    SELECT kernels.run_id, kernels.rank, kernels.event_id, events.pre
    FROM kernels
    JOIN events
      ON events.run_id = kernels.run_id AND events.rank = kernels.rank AND events.event_id = kernels.op_id
    WHERE kernels.kind <> 'communication'
  ),
  working AS (
    -- Operators with a rule do not enclose each other: only the last one that began can enclose the launch.
    SELECT
      launched.run_id,
      launched.rank,
      launched.event_id,
      counted.work_id,
      counted.family,
      counted.work_unit,
      CASE
        WHEN counted.work_unit IS NULL THEN NULL
        WHEN counted.main_kernel_id = launched.event_id THEN counted.amount
        ELSE 0
      END AS work
    FROM launched
    ASOF JOIN counted
      ON counted.run_id = launched.run_id AND counted.rank = launched.rank AND counted.pre <= launched.pre
    WHERE launched.pre <= counted.post
  )
SELECT
  kernels.run_id,
  kernels.rank,
  kernels.event_id,
  coalesce(
    CASE WHEN kernels.kind = 'communication' THEN '(communication)' END,
    replace(node.module_path, 'nn.Module: ', ''),
    owner.module_path,
    CASE WHEN kernels.pass = 'optimizer' THEN '(optimizer)' ELSE '(outside any module)' END
  ) AS module_path,
  working.work_id,
  working.family,
  working.work_unit,
  working.work
FROM kernels
LEFT JOIN graph_nodes AS node USING (run_id, rank, event_id)
LEFT JOIN kernel_modules AS owner
  ON owner.run_id = kernels.run_id AND owner.rank = kernels.rank AND owner.kernel_id = kernels.event_id
LEFT JOIN working USING (run_id, rank, event_id)
