-- /// tw
-- kind     = "analysis"
-- name     = "kernels_by_annotation"
-- version  = 1
-- summary  = "Each GPU row with all annotations that stood around its launch."
-- requires = ["annotations@1", "kernels@1", "runtime@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "kernel_id"]
-- order    = ["run_id", "rank", "kernel_id"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- kernel_id     = { type = "BIGINT", unit = "id", doc = "event_id of the GPU row." }
-- name          = { type = "VARCHAR", null = true, doc = "The GPU row's name." }
-- kind          = { type = "VARCHAR", doc = "computation, communication, memory or other." }
-- device        = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- stream        = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 where the trace does not say." }
-- kernel_ns     = { type = "BIGINT", unit = "ns", better = "lower", doc = "How long the GPU row took." }
-- launch_state  = { type = "VARCHAR", doc = "linked; before_window or missing, where no launch is known and so no annotation." }
-- depth         = { type = "BIGINT", unit = "depth", doc = "How many annotations of the launching thread held the start of the launching call; 0 for none." }
-- annotation_id = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the innermost." }
-- annotation    = { type = "VARCHAR", null = true, doc = "The innermost." }
-- path          = { type = "VARCHAR", null = true, doc = "All of them, outermost first, with > between." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  annotation AS MATERIALIZED (
    SELECT run_id, rank, event_id, parent_id, name, coalesce(name, '') AS said, ts_ns + dur_ns AS end_ns
    FROM annotations
  ),
  stack AS (
    -- Each with those around it, from the outside in, and the first end of all of them.
    SELECT
      run_id,
      rank,
      event_id,
      name,
      1 AS depth,
      said AS path,
      end_ns AS until_ns,
      [{said: said, end_ns: end_ns}] AS layers
    FROM annotation
    WHERE parent_id IS NULL
    UNION ALL
    SELECT
      inside.run_id,
      inside.rank,
      inside.event_id,
      inside.name,
      stack.depth + 1 AS depth,
      stack.path || ' > ' || inside.said AS path,
      least(stack.until_ns, inside.end_ns) AS until_ns,
      list_append(stack.layers, {said: inside.said, end_ns: inside.end_ns}) AS layers
    FROM stack
    JOIN annotation AS inside
      ON inside.run_id = stack.run_id
      AND inside.rank = stack.rank
      AND inside.parent_id = stack.event_id
  ),
  launched AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      kernels.name,
      kernels.kind,
      kernels.device,
      kernels.stream,
      kernels.dur_ns,
      kernels.launch_state,
      kernels.annotation_id,
      stack.name AS annotation,
      stack.depth,
      stack.path,
      runtime.ts_ns < stack.until_ns AS within_all,
      -- An annotation that crosses another may have outlived it when the call began.
      CASE
        WHEN runtime.ts_ns >= stack.until_ns
          THEN list_filter(stack.layers, LAMBDA layer: layer.end_ns > runtime.ts_ns)
      END AS layers
    FROM kernels
    LEFT JOIN runtime
      ON runtime.run_id = kernels.run_id
      AND runtime.rank = kernels.rank
      AND runtime.event_id = kernels.runtime_id
    LEFT JOIN stack
      ON stack.run_id = kernels.run_id
      AND stack.rank = kernels.rank
      AND stack.event_id = kernels.annotation_id
  )
SELECT
  run_id,
  rank,
  event_id AS kernel_id,
  name,
  kind,
  device,
  stream,
  dur_ns AS kernel_ns,
  launch_state,
  CASE WHEN within_all THEN depth ELSE coalesce(len(layers), 0) END AS depth,
  annotation_id,
  annotation,
  CASE
    WHEN within_all THEN path
    ELSE array_to_string(list_transform(layers, LAMBDA layer: layer.said), ' > ')
  END AS path
FROM launched
