-- /// tw
-- kind     = "view"
-- name     = "host_frames"
-- version  = 1
-- summary  = "Operators and nn.Module frames on host threads: what `path_sig` of a launch consists of."
-- requires = ["events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "pre"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- event_id  = { type = "BIGINT", unit = "id", doc = "The operator or frame." }
-- name      = { type = "VARCHAR", null = true, doc = "Its name." }
-- is_module = { type = "BOOLEAN", doc = "True for an nn.Module frame." }
-- op_sig    = { type = "VARCHAR", doc = "Name with the shapes and types of its inputs, as in `kernels`." }
-- pre       = { type = "BIGINT", unit = "id", doc = "Position in nesting order (preorder) over the rank." }
-- post      = { type = "BIGINT", unit = "id", doc = "Position of its last descendant: for descendants, pre < theirs <= post." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  name,
  category = 'python_function' AS is_module,
  concat_ws(' ', name, shapes, dtypes) AS op_sig,
  pre,
  post
FROM events
WHERE pre IS NOT NULL
  AND (category = 'cpu_op' OR category = 'python_function' AND starts_with(name, 'nn.Module: '))
