-- /// tw
-- kind      = "table"
-- name      = "parents"
-- version   = 1
-- summary   = "The parent of a host slice: the last one on its thread that started before it and is still open."
-- requires  = ["host_slices@1"]
-- grain     = ["run_id", "rank", "pre"]
-- order     = ["run_id", "rank", "pre"]
-- transient = true
--
-- [params]
-- block_bits = { type = "INTEGER", default = 5, min = 1, max = 16, doc = "The search goes through blocks of 2^block_bits slices; the result does not depend on it." }
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- event_id   = { type = "BIGINT", unit = "id", doc = "The slice." }
-- pre        = { type = "BIGINT", unit = "id", doc = "Its place in nesting order." }
-- parent_id  = { type = "BIGINT", null = true, unit = "id", doc = "The parent; null for a root." }
-- parent_pre = { type = "BIGINT", unit = "id", doc = "The parent's place; 0 for a root." }
-- crosses    = { type = "BOOLEAN", doc = "It ends after its parent." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  slice AS (
    SELECT
      run_id,
      rank,
      event_id,
      pre,
      thread,
      ts_ns,
      end_ns,
      pre >> $block_bits AS block,
      lag(end_ns) OVER in_order > ts_ns AND lag(thread) OVER in_order = thread AS is_child_of_previous
    FROM host_slices
    WINDOW in_order AS (ORDER BY pre)
  ),
  -- Slices in blocks, blocks in wide blocks, those in vast ones: each with its latest end.
  block AS (
    SELECT block, max(end_ns) AS end_ns, block >> $block_bits AS wide_block
    FROM slice
    GROUP BY block
  ),
  wide AS (
    SELECT wide_block, max(end_ns) AS end_ns, wide_block >> $block_bits AS vast_block
    FROM block
    GROUP BY wide_block
  ),
  vast AS (
    SELECT vast_block, max(end_ns) AS end_ns
    FROM wide
    GROUP BY vast_block
  ),
  seeker AS (
    SELECT
      pre,
      thread,
      ts_ns,
      block,
      block >> $block_bits AS wide_block,
      block >> $block_bits >> $block_bits AS vast_block
    FROM slice
    WHERE is_child_of_previous IS NOT TRUE
  ),
  -- Backwards and up: the last open slice of its own block, else the last block that has one.
  near_slice AS (
    SELECT seeker.pre, max(slice.pre) AS parent_pre
    FROM seeker
    JOIN slice
      ON slice.block = seeker.block AND slice.pre < seeker.pre
      AND slice.thread = seeker.thread AND slice.end_ns > seeker.ts_ns
    GROUP BY seeker.pre
  ),
  far_seeker AS (
    SELECT pre, ts_ns, block, wide_block, vast_block
    FROM seeker
    ANTI JOIN near_slice USING (pre)
  ),
  near_block AS (
    SELECT far_seeker.pre, far_seeker.ts_ns, max(block.block) AS block
    FROM far_seeker
    JOIN block
      ON block.wide_block = far_seeker.wide_block AND block.block < far_seeker.block
      AND block.end_ns > far_seeker.ts_ns
    GROUP BY far_seeker.pre, far_seeker.ts_ns
  ),
  farther_seeker AS (
    SELECT pre, ts_ns, wide_block, vast_block
    FROM far_seeker
    ANTI JOIN near_block USING (pre)
  ),
  near_wide AS (
    SELECT farther_seeker.pre, farther_seeker.ts_ns, max(wide.wide_block) AS wide_block
    FROM farther_seeker
    JOIN wide
      ON wide.vast_block = farther_seeker.vast_block AND wide.wide_block < farther_seeker.wide_block
      AND wide.end_ns > farther_seeker.ts_ns
    GROUP BY farther_seeker.pre, farther_seeker.ts_ns
  ),
  farthest_seeker AS (
    SELECT pre, ts_ns, vast_block
    FROM farther_seeker
    ANTI JOIN near_wide USING (pre)
  ),
  any_vast AS (
    SELECT farthest_seeker.pre, farthest_seeker.ts_ns, max(vast.vast_block) AS vast_block
    FROM farthest_seeker
    JOIN vast ON vast.vast_block < farthest_seeker.vast_block AND vast.end_ns > farthest_seeker.ts_ns
    GROUP BY farthest_seeker.pre, farthest_seeker.ts_ns
  ),
  -- And down again to the slice.
  found_wide AS (
    SELECT any_vast.pre, any_vast.ts_ns, max(wide.wide_block) AS wide_block
    FROM any_vast
    JOIN wide ON wide.vast_block = any_vast.vast_block AND wide.end_ns > any_vast.ts_ns
    GROUP BY any_vast.pre, any_vast.ts_ns
    UNION ALL
    SELECT pre, ts_ns, wide_block FROM near_wide
  ),
  found_block AS (
    SELECT found_wide.pre, found_wide.ts_ns, max(block.block) AS block
    FROM found_wide
    JOIN block ON block.wide_block = found_wide.wide_block AND block.end_ns > found_wide.ts_ns
    GROUP BY found_wide.pre, found_wide.ts_ns
    UNION ALL
    SELECT pre, ts_ns, block FROM near_block
  ),
  found_slice AS (
    SELECT found_block.pre, max(slice.pre) AS parent_pre
    FROM found_block
    JOIN slice ON slice.block = found_block.block AND slice.end_ns > found_block.ts_ns
    GROUP BY found_block.pre
    UNION ALL
    SELECT pre, parent_pre FROM near_slice
    UNION ALL
    SELECT pre, pre - 1 FROM slice WHERE is_child_of_previous
  )
SELECT
  child.run_id,
  child.rank,
  child.event_id,
  child.pre,
  parent.event_id AS parent_id,
  coalesce(parent.pre, 0) AS parent_pre,
  coalesce(child.end_ns > parent.end_ns, FALSE) AS crosses
FROM slice AS child
LEFT JOIN found_slice ON found_slice.pre = child.pre
-- A slice of another thread that is found means that its own has none.
LEFT JOIN slice AS parent ON parent.pre = found_slice.parent_pre AND parent.thread = child.thread
