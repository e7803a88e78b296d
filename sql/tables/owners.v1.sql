-- /// tw
-- kind      = "table"
-- name      = "owners"
-- version   = 1
-- summary   = "A host slice that launches are attributed to: an operator, a module's frame, a recomputing frame."
-- requires  = ["events@1"]
-- grain     = ["run_id", "rank", "event_id"]
-- order     = ["run_id", "rank", "event_id"]
-- transient = true
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- event_id      = { type = "BIGINT", unit = "id", doc = "The slice." }
-- name          = { type = "VARCHAR", null = true, doc = "Its name." }
-- is_op         = { type = "BOOLEAN", doc = "It is an operator." }
-- is_collective = { type = "BOOLEAN", null = true, doc = "It is an operator with a collective's arguments; null for one without arguments." }
-- is_module     = { type = "BOOLEAN", null = true, doc = "It is the frame of an nn.Module; null where it has no name." }
-- pre           = { type = "BIGINT", unit = "id", doc = "Its place in the order of nesting." }
-- post          = { type = "BIGINT", unit = "id", doc = "Place of its last descendant." }
-- ts_ns         = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- end_ns        = { type = "BIGINT", signed = true, unit = "ts", doc = "End." }
-- pass          = { type = "VARCHAR", null = true, doc = "The pass of training that it tells: backward, recompute, optimizer or data." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  name,
  category = 'cpu_op' AS is_op,
  category = 'cpu_op' AND contains(args, '"Collective name"') AS is_collective,
  starts_with(name, 'nn.Module: ') AS is_module,
  pre,
  post,
  ts_ns,
  ts_ns + dur_ns AS end_ns,
  CASE
    WHEN category = 'python_function' THEN CASE WHEN contains(name, ': recompute_fn') THEN 'recompute' END
    WHEN name = 'autograd::engine::evaluate_function: CheckpointFunctionBackward' THEN 'recompute'
    WHEN starts_with(name, 'autograd::engine::evaluate_function: ') THEN 'backward'
    WHEN starts_with(name, 'Optimizer.') THEN 'optimizer'
    WHEN starts_with(name, 'enumerate(DataLoader)#') THEN 'data'
  END AS pass
FROM events
WHERE pre IS NOT NULL AND (
  category = 'cpu_op'
  OR category = 'python_function' AND (starts_with(name, 'nn.Module: ') OR contains(name, ': recompute_fn'))
)
