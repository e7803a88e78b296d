-- /// tw
-- kind     = "table"
-- name     = "annotations"
-- version  = 1
-- summary  = "A stretch of time that someone named, on a host thread or on a GPU stream."
-- requires = ["events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- event_id    = { type = "BIGINT", unit = "id", doc = "The row." }
-- name        = { type = "VARCHAR", null = true, doc = "The name given." }
-- on_gpu      = { type = "BOOLEAN", doc = "The profiler's copy on the GPU: from the first to the last kernel launched inside." }
-- pid         = { type = "VARCHAR", null = true, doc = "The process." }
-- tid         = { type = "VARCHAR", null = true, doc = "The thread." }
-- device      = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device of a GPU annotation." }
-- stream      = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream of a GPU annotation." }
-- ts_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- dur_ns      = { type = "BIGINT", unit = "ns", doc = "Length." }
-- step        = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step that holds its start; null on the GPU." }
-- external_id = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Id that the two copies share." }
-- shapes      = { type = "JSON", null = true, doc = "Shapes of its inputs: the profiler keeps them for collectives." }
-- dtypes      = { type = "JSON", null = true, doc = "Types of its inputs." }
-- depth       = { type = "BIGINT", null = true, unit = "depth", doc = "Depth among the annotations of its thread, 1 for a root; null on the GPU." }
-- parent_id   = { type = "BIGINT", null = true, unit = "id", doc = "The annotation around it." }
-- pre         = { type = "BIGINT", null = true, unit = "id", doc = "Its place in the order of nesting." }
-- post        = { type = "BIGINT", null = true, unit = "id", doc = "Place of its last descendant: descendants have pre < theirs <= post." }
-- crosses     = { type = "BOOLEAN", null = true, doc = "It ends after its parent." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  name,
  category = 'gpu_user_annotation' AS on_gpu,
  pid,
  tid,
  device,
  stream,
  ts_ns,
  dur_ns,
  step,
  external_id,
  shapes,
  dtypes,
  depth,
  parent_id,
  pre,
  post,
  crosses
FROM events
WHERE category IN ('user_annotation', 'gpu_user_annotation') AND ph IN ('X', 'B') AND dur_ns IS NOT NULL
