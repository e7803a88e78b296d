-- /// tw
-- kind     = "analysis"
-- name     = "kernels_by_annotation"
-- version  = 1
-- summary  = "GPU activities with all annotations enclosing the launch of each."
-- requires = ["annotations@1", "kernels@1", "runtime@1"]
-- needs    = ["gpu", "launches"]
-- grain    = ["run_id", "rank", "kernel_id"]
-- order    = ["run_id", "rank", "kernel_id"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- kernel_id     = { type = "BIGINT", unit = "id", doc = "event_id of the GPU activity." }
-- name          = { type = "VARCHAR", null = true, doc = "Name of the GPU activity." }
-- kind          = { type = "VARCHAR", doc = "computation, communication, memory or other." }
-- device        = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- stream        = { type = "BIGINT", unit = "id", signed = true, doc = "The stream; -1 if unknown." }
-- kernel_ns     = { type = "BIGINT", unit = "ns", better = "lower", doc = "Duration of the GPU activity." }
-- launch_state  = { type = "VARCHAR", doc = "known; before_window or missing: the launch is unknown, and so are its annotations." }
-- depth         = { type = "BIGINT", unit = "depth", doc = "Number of annotations on the launching thread that enclose the start of the launch call; 0 if none." }
-- annotation_id = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the innermost annotation." }
-- annotation    = { type = "VARCHAR", null = true, doc = "Name of the innermost annotation." }
-- path          = { type = "VARCHAR", null = true, doc = "All enclosing annotations, outermost first, joined with >." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  annotation AS MATERIALIZED (
    SELECT run_id, rank, event_id, parent_id, name, coalesce(name, '') AS label, ts_ns + dur_ns AS end_ns
    FROM annotations
  ),
  stack AS (
    -- Each annotation with those enclosing it, outermost first, and the earliest end of them.
    SELECT
      run_id,
      rank,
      event_id,
      name,
      1 AS depth,
      label AS path,
      end_ns AS until_ns,
      [{label: label, end_ns: end_ns}] AS layers
    FROM annotation
    WHERE parent_id IS NULL
    UNION ALL
    SELECT
      inside.run_id,
      inside.rank,
      inside.event_id,
      inside.name,
      stack.depth + 1 AS depth,
      stack.path || ' > ' || inside.label AS path,
      least(stack.until_ns, inside.end_ns) AS until_ns,
      list_append(stack.layers, {label: inside.label, end_ns: inside.end_ns}) AS layers
    FROM stack
    JOIN annotation AS inside
      ON inside.run_id = stack.run_id AND inside.rank = stack.rank AND inside.parent_id = stack.event_id
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
      -- If annotations overlap without nesting, an outer one may have ended before the call began.
      CASE
        WHEN runtime.ts_ns >= stack.until_ns
          THEN list_filter(stack.layers, LAMBDA layer: layer.end_ns > runtime.ts_ns)
      END AS layers
    FROM kernels
    LEFT JOIN runtime
      ON runtime.run_id = kernels.run_id AND runtime.rank = kernels.rank AND runtime.event_id = kernels.runtime_id
    LEFT JOIN stack
      ON stack.run_id = kernels.run_id AND stack.rank = kernels.rank AND stack.event_id = kernels.annotation_id
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
    ELSE array_to_string(list_transform(layers, LAMBDA layer: layer.label), ' > ')
  END AS path
FROM launched
