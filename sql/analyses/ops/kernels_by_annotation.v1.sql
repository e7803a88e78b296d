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
  launch AS (
    SELECT DISTINCT
      kernels.run_id,
      kernels.rank,
      kernels.runtime_id,
      kernels.annotation_id,
      runtime.ts_ns AS call_ns
    FROM kernels
    JOIN runtime
      ON runtime.run_id = kernels.run_id
      AND runtime.rank = kernels.rank
      AND runtime.event_id = kernels.runtime_id
    WHERE kernels.annotation_id IS NOT NULL
  ),
  above AS (
    SELECT run_id, rank, runtime_id, call_ns, annotation_id
    FROM launch
    UNION ALL
    SELECT above.run_id, above.rank, above.runtime_id, above.call_ns, annotations.parent_id
    FROM above
    JOIN annotations
      ON annotations.run_id = above.run_id
      AND annotations.rank = above.rank
      AND annotations.event_id = above.annotation_id
    WHERE annotations.parent_id IS NOT NULL
  ),
  stack AS (
    SELECT
      above.run_id,
      above.rank,
      above.runtime_id,
      count(*) AS depth,
      string_agg(coalesce(annotations.name, ''), ' > ' ORDER BY annotations.pre) AS path
    FROM above
    JOIN annotations
      ON annotations.run_id = above.run_id
      AND annotations.rank = above.rank
      AND annotations.event_id = above.annotation_id
    -- An annotation that crosses another may have outlived it when the call began.
    WHERE annotations.ts_ns + annotations.dur_ns > above.call_ns
    GROUP BY above.run_id, above.rank, above.runtime_id
  )
SELECT
  kernels.run_id,
  kernels.rank,
  kernels.event_id AS kernel_id,
  kernels.name,
  kernels.kind,
  kernels.device,
  kernels.stream,
  kernels.dur_ns AS kernel_ns,
  kernels.launch_state,
  coalesce(stack.depth, 0) AS depth,
  kernels.annotation_id,
  annotations.name AS annotation,
  stack.path
FROM kernels
LEFT JOIN annotations
  ON annotations.run_id = kernels.run_id
  AND annotations.rank = kernels.rank
  AND annotations.event_id = kernels.annotation_id
LEFT JOIN stack
  ON stack.run_id = kernels.run_id
  AND stack.rank = kernels.rank
  AND stack.runtime_id = kernels.runtime_id
