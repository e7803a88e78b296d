-- /// tw
-- kind      = "table"
-- name      = "kernel_owners"
-- version   = 1
-- summary   = "What a launching call belongs to: operators, module, annotation and pass of training."
-- requires  = ["events@1", "launch_calls@1", "around@1", "owners@1", "annotations@1"]
-- grain     = ["run_id", "rank", "runtime_id"]
-- order     = ["run_id", "rank", "runtime_id"]
-- transient = true
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- runtime_id    = { type = "BIGINT", unit = "id", doc = "The launching call." }
-- op_id         = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator around it." }
-- top_op_id     = { type = "BIGINT", null = true, unit = "id", doc = "The outermost operator around it." }
-- collective_id = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator around it that carries a collective's arguments." }
-- module_id     = { type = "BIGINT", null = true, unit = "id", doc = "The innermost nn.Module frame around it." }
-- annotation_id = { type = "BIGINT", null = true, unit = "id", doc = "The innermost annotation around it on its thread." }
-- pass          = { type = "VARCHAR", doc = "forward, backward, recompute, optimizer, data or other." }
-- op_sig        = { type = "VARCHAR", null = true, doc = "Operator, shapes and types of its inputs." }
-- path_sig      = { type = "VARCHAR", null = true, doc = "Modules and operators around it, outermost first." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  open_owner AS (
    SELECT
      call.runtime_id,
      owner.event_id AS owner_id,
      owner.pre,
      owner.ts_ns,
      owner.name,
      -- Below a crossing slice stand slices whose end it has outlived.
      CASE WHEN owner.end_ns > call.ts_ns THEN owner.is_op ELSE FALSE END AS is_op,
      CASE WHEN owner.end_ns > call.ts_ns THEN owner.is_module ELSE FALSE END AS is_module,
      owner.is_collective,
      CASE WHEN owner.end_ns > call.ts_ns THEN owner.pass END AS pass
    FROM launch_calls AS call
    JOIN around ON around.call_id = call.runtime_id
    JOIN owners AS owner ON owner.event_id = around.owner_id
  ),
  chain AS (
    SELECT
      runtime_id,
      arg_max(owner_id, pre) FILTER (is_op) AS op_id,
      arg_min(owner_id, pre) FILTER (is_op) AS top_op_id,
      arg_max(owner_id, pre) FILTER (is_op AND is_collective) AS collective_id,
      arg_max(owner_id, pre) FILTER (is_module) AS module_id,
      arg_max(pass, pre) FILTER (pass IS NOT NULL) AS pass,
      max(ts_ns) FILTER (pass IS NOT NULL) AS pass_ns,
      string_agg(name, ' > ' ORDER BY pre) FILTER (is_op OR is_module) AS path_sig
    FROM open_owner
    GROUP BY runtime_id
  ),
  latest AS (
    -- Of annotations that start together the innermost.
    SELECT call.runtime_id, call.ts_ns, note.pre
    FROM launch_calls AS call
    ASOF JOIN (
      SELECT pid, tid, ts_ns, max(pre) AS pre FROM annotations WHERE pre IS NOT NULL GROUP BY pid, tid, ts_ns
    ) AS note
      ON note.pid = call.pid AND note.tid = call.tid AND note.ts_ns <= call.ts_ns
  ),
  note AS (
    -- What is open around a call is the annotation that started last before it, or around that one.
    SELECT
      latest.runtime_id,
      note.event_id AS annotation_id,
      note.pre,
      note.ts_ns,
      CASE
        WHEN starts_with(note.name, 'Optimizer.') THEN 'optimizer'
        WHEN starts_with(note.name, 'enumerate(DataLoader)#') THEN 'data'
      END AS pass
    FROM latest
    JOIN annotations AS note
      ON note.pre <= latest.pre AND note.post >= latest.pre AND note.ts_ns + note.dur_ns > latest.ts_ns
  ),
  noted AS (
    SELECT
      runtime_id,
      arg_max(annotation_id, pre) AS annotation_id,
      arg_max(pass, pre) FILTER (pass IS NOT NULL) AS pass,
      max(ts_ns) FILTER (pass IS NOT NULL) AS pass_ns
    FROM note
    GROUP BY runtime_id
  )
SELECT
  call.run_id,
  call.rank,
  call.runtime_id,
  chain.op_id,
  chain.top_op_id,
  chain.collective_id,
  chain.module_id,
  noted.annotation_id,
  CASE
    WHEN noted.pass_ns >= chain.pass_ns OR chain.pass IS NULL AND noted.pass IS NOT NULL THEN noted.pass
    WHEN chain.pass IS NOT NULL THEN chain.pass
    WHEN chain.op_id IS NOT NULL THEN 'forward'
    ELSE 'other'
  END AS pass,
  op.name || coalesce(' ' || op.shapes, '') || coalesce(' ' || op.dtypes, '') AS op_sig,
  chain.path_sig
FROM launch_calls AS call
LEFT JOIN chain ON chain.runtime_id = call.runtime_id
LEFT JOIN noted ON noted.runtime_id = call.runtime_id
LEFT JOIN events AS op ON op.event_id = chain.op_id
