-- /// tw
-- kind     = "analysis"
-- name     = "host_stacks"
-- version  = 1
-- summary  = "Call tree of the training thread: Python frames, annotations, operators and calls, merged by stack, with total and self time."
-- requires = ["training_slices@1", "steps@1"]
-- grain    = ["run_id", "rank", "node_id"]
-- per      = "window"
-- order    = ["run_id", "rank", "-total_ns", "depth", "node_id"]
--
-- [params]
-- only_step = { type = "BIGINT", doc = "Only the period of this step; without it, from the first to the last slice of the thread." }
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- node_id   = { type = "BIGINT", unit = "id", null = true, doc = "The node: the event of its first slice. A node merges all slices of the same name with the same stack above them. Null for time without a slice." }
-- parent_id = { type = "BIGINT", unit = "id", null = true, doc = "The node that called it; null for the outermost." }
-- depth     = { type = "BIGINT", unit = "count", doc = "Nodes in its stack, itself included; 0 for time without a slice." }
-- category  = { type = "VARCHAR", doc = "data_loading (slices that match `data_loading_rules`, with everything called in them), operator, call (runtime and driver), python, annotation, other_slice, or unrecorded: no slice but the step's." }
-- name      = { type = "VARCHAR", null = true, doc = "Name, without object addresses; all steps of the profiler are ProfilerStep*. Null for time without a slice." }
-- count     = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Slices, also those that reach beyond the step." }
-- total_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time of the thread in it and in everything it called." }
-- self_ns   = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time of the thread in it and in no slice that it called. The nodes sum to the period, or to the recording of the thread." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  on_thread AS (
    SELECT
      run_id,
      rank,
      event_id,
      parent_id,
      pre,
      start_ns,
      end_ns,
      is_loading,
      is_annotation,
      next_id,
      is_outlasted,
      CASE category WHEN 'step' THEN 'unrecorded' ELSE category END AS category,
      CASE category WHEN 'step' THEN 'ProfilerStep*' ELSE name END AS name
    FROM training_slices
  ),
  span AS (
    SELECT run_id, rank, period_start_ns AS from_ns, period_start_ns + period_ns AS to_ns
    FROM steps
    WHERE step = $only_step AND period_ns > 0
    UNION ALL
    SELECT run_id, rank, min(start_ns), max(end_ns)
    FROM on_thread
    WHERE $only_step IS NULL
    GROUP BY run_id, rank
  ),
  slice AS (
    SELECT
      on_thread.run_id,
      on_thread.rank,
      on_thread.event_id,
      on_thread.parent_id,
      on_thread.is_annotation,
      on_thread.next_id,
      on_thread.is_outlasted,
      on_thread.pre,
      on_thread.start_ns,
      on_thread.end_ns,
      -- Whichever slice begins later, or ends earlier, is the inner one; an annotation is outside of its equal.
      (on_thread.start_ns, -on_thread.end_ns, NOT on_thread.is_annotation, on_thread.pre) AS place,
      greatest(on_thread.start_ns, span.from_ns) AS from_ns,
      least(on_thread.end_ns, span.to_ns) AS to_ns,
      on_thread.category,
      on_thread.name,
      on_thread.is_loading
    FROM on_thread
    JOIN span
      ON span.run_id = on_thread.run_id
      AND span.rank = on_thread.rank
      AND on_thread.start_ns < span.to_ns
      AND on_thread.end_ns > span.from_ns
  ),
  point AS (
    -- Annotations nest among themselves, and so do all other slices: two layers. At the end of a slice its caller runs
    -- in its layer, or nothing (-1), unless what it called runs on. Ends come first, then starts, outer before inner ones.
    SELECT run_id, rank, is_annotation, from_ns AS at_ns, 1 AS turn, place, event_id AS started, event_id AS owner_id
    FROM slice
    UNION ALL
    SELECT run_id, rank, is_annotation, to_ns, 0,
      (-place[1], -place[2], place[3], -place[4]), NULL, coalesce(next_id, -1)
    FROM slice
    WHERE NOT is_outlasted
    UNION ALL
    SELECT run_id, rank, NULL, from_ns, 0, NULL, NULL, NULL
    FROM span
    UNION ALL
    SELECT run_id, rank, NULL, to_ns, 2, NULL, NULL, NULL
    FROM span
  ),
  numbered AS (
    SELECT
      run_id,
      rank,
      is_annotation,
      at_ns,
      started,
      owner_id,
      row_number() OVER (
        PARTITION BY run_id, rank
        ORDER BY at_ns, turn, place NULLS FIRST, is_annotation, owner_id
      ) AS number
    FROM point
  ),
  state AS (
    -- The last owner so far in each layer: the maximum of number and owner, packed into one number.
    SELECT
      run_id,
      rank,
      started,
      lead(at_ns) OVER so_far - at_ns AS segment_ns,
      nullif(
        ((max(CASE WHEN is_annotation THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1,
        -1
      ) AS annotation_id,
      nullif(
        ((max(CASE WHEN NOT is_annotation THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1,
        -1
      ) AS slice_id
    FROM numbered
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY number ROWS UNBOUNDED PRECEDING)
  ),
  around AS (
    -- What runs in the other layer at the start of a slice, then its callers up to the first that contains the slice: an
    -- annotation outlasts the Python frame that began it.
    SELECT
      slice.run_id,
      slice.rank,
      slice.event_id,
      slice.end_ns,
      CASE WHEN slice.is_annotation THEN state.slice_id ELSE state.annotation_id END AS other_id
    FROM slice
    JOIN state ON state.run_id = slice.run_id AND state.rank = slice.rank AND state.started = slice.event_id
    UNION ALL
    SELECT around.run_id, around.rank, around.event_id, around.end_ns, shorter.parent_id
    FROM around
    JOIN slice AS shorter
      ON shorter.run_id = around.run_id
      AND shorter.rank = around.rank
      AND shorter.event_id = around.other_id
      AND shorter.end_ns < around.end_ns
  ),
  outside AS (
    SELECT around.run_id, around.rank, around.event_id, other.event_id AS other_id, other.place
    FROM around
    JOIN slice AS other
      ON other.run_id = around.run_id
      AND other.rank = around.rank
      AND other.event_id = around.other_id
      AND other.end_ns >= around.end_ns
  ),
  nested AS (
    -- The caller of a slice is the inner one of its caller in its own layer and of what contains it in the other.
    SELECT
      slice.run_id,
      slice.rank,
      slice.event_id,
      slice.pre,
      slice.category,
      slice.name,
      slice.is_loading,
      CASE WHEN called.place > outside.place OR outside.place IS NULL THEN called.event_id ELSE outside.other_id END AS caller_id
    FROM slice
    LEFT JOIN slice AS called ON called.run_id = slice.run_id AND called.rank = slice.rank AND called.event_id = slice.parent_id
    LEFT JOIN outside ON outside.run_id = slice.run_id AND outside.rank = slice.rank AND outside.event_id = slice.event_id
  ),
  stack AS (
    -- Slices of the same name under the same node are one node, whose number is the first of their events.
    SELECT
      run_id,
      rank,
      event_id,
      name,
      is_loading,
      CASE WHEN is_loading THEN 'data_loading' ELSE category END AS category,
      first_value(event_id) OVER (PARTITION BY run_id, rank, category, name ORDER BY pre) AS node_id,
      NULL::BIGINT AS parent_node_id,
      1::BIGINT AS depth
    FROM nested
    WHERE caller_id IS NULL
    UNION ALL
    SELECT
      nested.run_id,
      nested.rank,
      nested.event_id,
      nested.name,
      nested.is_loading OR stack.is_loading,
      CASE WHEN nested.is_loading OR stack.is_loading THEN 'data_loading' ELSE nested.category END,
      first_value(nested.event_id) OVER (
        PARTITION BY nested.run_id, nested.rank, stack.node_id, nested.category, nested.name ORDER BY nested.pre
      ),
      stack.node_id,
      stack.depth + 1
    FROM nested
    JOIN stack ON stack.run_id = nested.run_id AND stack.rank = nested.rank AND stack.event_id = nested.caller_id
  ),
  own AS (
    -- The inner slice of both layers has the time.
    SELECT
      state.run_id,
      state.rank,
      CASE WHEN inside.place > annotation.place OR annotation.place IS NULL THEN inside.event_id ELSE annotation.event_id END AS owner_id,
      sum(state.segment_ns)::BIGINT AS self_ns
    FROM state
    LEFT JOIN slice AS inside ON inside.run_id = state.run_id AND inside.rank = state.rank AND inside.event_id = state.slice_id
    LEFT JOIN slice AS annotation
      ON annotation.run_id = state.run_id AND annotation.rank = state.rank AND annotation.event_id = state.annotation_id
    WHERE state.segment_ns > 0
    GROUP BY state.run_id, state.rank, owner_id
  ),
  node AS (
    SELECT
      stack.run_id,
      stack.rank,
      stack.node_id,
      stack.parent_node_id,
      stack.depth,
      stack.category,
      stack.name,
      count(*) AS count,
      coalesce(sum(own.self_ns), 0)::BIGINT AS self_ns
    FROM stack
    LEFT JOIN own ON own.run_id = stack.run_id AND own.rank = stack.rank AND own.owner_id = stack.event_id
    GROUP BY stack.run_id, stack.rank, stack.node_id, stack.parent_node_id, stack.depth, stack.category, stack.name
  ),
  above AS (
    -- Each node with itself and all nodes above it.
    SELECT run_id, rank, node_id, parent_node_id, self_ns
    FROM node
    UNION ALL
    SELECT above.run_id, above.rank, node.node_id, node.parent_node_id, above.self_ns
    FROM above
    JOIN node ON node.run_id = above.run_id AND node.rank = above.rank AND node.node_id = above.parent_node_id
  ),
  total AS (
    SELECT run_id, rank, node_id, sum(self_ns)::BIGINT AS total_ns
    FROM above
    GROUP BY run_id, rank, node_id
  )
SELECT
  node.run_id,
  node.rank,
  node.node_id,
  node.parent_node_id AS parent_id,
  node.depth,
  node.category,
  node.name,
  node.count,
  total.total_ns,
  node.self_ns
FROM node
JOIN total USING (run_id, rank, node_id)
UNION ALL
SELECT run_id, rank, NULL, NULL, 0, 'unrecorded', NULL, 0, self_ns, self_ns
FROM own
WHERE owner_id IS NULL
