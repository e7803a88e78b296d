-- /// tw
-- kind      = "table"
-- name      = "nesting"
-- version   = 1
-- summary   = "Where each host slice stands in the tree of its thread."
-- requires  = ["parents@1"]
-- grain     = ["run_id", "rank", "event_id"]
-- order     = ["run_id", "rank", "pre"]
-- transient = true
--
-- [params]
-- block_bits = { type = "INTEGER", default = 5, min = 1, max = 16, doc = "The search goes through blocks of 2^block_bits slices; the result does not depend on it." }
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- event_id  = { type = "BIGINT", unit = "id", doc = "The slice." }
-- parent_id = { type = "BIGINT", null = true, unit = "id", doc = "The slice around it; null for a root." }
-- depth     = { type = "BIGINT", unit = "depth", doc = "1 for a root." }
-- pre       = { type = "BIGINT", unit = "id", doc = "Its place among all slices of the rank." }
-- post      = { type = "BIGINT", unit = "id", doc = "The place of its last descendant: descendants are pre < theirs <= post." }
-- crosses   = { type = "BOOLEAN", doc = "It ends after its parent." }
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
      parent_id,
      pre,
      parent_pre,
      crosses,
      pre >> $block_bits AS block,
      coalesce(lead(parent_pre) OVER in_order = pre, FALSE) AS has_child
    FROM parents
    WINDOW in_order AS (ORDER BY pre)
  ),
  -- A subtree ends before the next slice whose parent stands before it. Blocks hold the least parent.
  block AS (
    SELECT block, min(parent_pre) AS parent_pre, block >> $block_bits AS wide_block
    FROM slice
    GROUP BY block
  ),
  wide AS (
    SELECT wide_block, min(parent_pre) AS parent_pre, wide_block >> $block_bits AS vast_block
    FROM block
    GROUP BY wide_block
  ),
  vast AS (
    SELECT vast_block, min(parent_pre) AS parent_pre
    FROM wide
    GROUP BY vast_block
  ),
  seeker AS (
    SELECT
      pre,
      block,
      block >> $block_bits AS wide_block,
      block >> $block_bits >> $block_bits AS vast_block
    FROM slice
    WHERE has_child
  ),
  near_slice AS (
    SELECT seeker.pre, min(slice.pre) AS next_pre
    FROM seeker
    JOIN slice
      ON slice.block = seeker.block AND slice.pre > seeker.pre AND slice.parent_pre < seeker.pre
    GROUP BY seeker.pre
  ),
  far_seeker AS (
    SELECT pre, block, wide_block, vast_block
    FROM seeker
    ANTI JOIN near_slice USING (pre)
  ),
  near_block AS (
    SELECT far_seeker.pre, min(block.block) AS block
    FROM far_seeker
    JOIN block
      ON block.wide_block = far_seeker.wide_block AND block.block > far_seeker.block
      AND block.parent_pre < far_seeker.pre
    GROUP BY far_seeker.pre
  ),
  farther_seeker AS (
    SELECT pre, wide_block, vast_block
    FROM far_seeker
    ANTI JOIN near_block USING (pre)
  ),
  near_wide AS (
    SELECT farther_seeker.pre, min(wide.wide_block) AS wide_block
    FROM farther_seeker
    JOIN wide
      ON wide.vast_block = farther_seeker.vast_block AND wide.wide_block > farther_seeker.wide_block
      AND wide.parent_pre < farther_seeker.pre
    GROUP BY farther_seeker.pre
  ),
  farthest_seeker AS (
    SELECT pre, vast_block
    FROM farther_seeker
    ANTI JOIN near_wide USING (pre)
  ),
  any_vast AS (
    SELECT farthest_seeker.pre, min(vast.vast_block) AS vast_block
    FROM farthest_seeker
    JOIN vast ON vast.vast_block > farthest_seeker.vast_block AND vast.parent_pre < farthest_seeker.pre
    GROUP BY farthest_seeker.pre
  ),
  found_wide AS (
    SELECT any_vast.pre, min(wide.wide_block) AS wide_block
    FROM any_vast
    JOIN wide ON wide.vast_block = any_vast.vast_block AND wide.parent_pre < any_vast.pre
    GROUP BY any_vast.pre
    UNION ALL
    SELECT pre, wide_block FROM near_wide
  ),
  found_block AS (
    SELECT found_wide.pre, min(block.block) AS block
    FROM found_wide
    JOIN block ON block.wide_block = found_wide.wide_block AND block.parent_pre < found_wide.pre
    GROUP BY found_wide.pre
    UNION ALL
    SELECT pre, block FROM near_block
  ),
  found_slice AS (
    SELECT found_block.pre, min(slice.pre) AS next_pre
    FROM found_block
    JOIN slice ON slice.block = found_block.block AND slice.parent_pre < found_block.pre
    GROUP BY found_block.pre
    UNION ALL
    SELECT pre, next_pre FROM near_slice
  ),
  spanned AS (
    SELECT
      slice.run_id,
      slice.rank,
      slice.event_id,
      slice.parent_id,
      slice.pre,
      CASE
        WHEN NOT slice.has_child THEN slice.pre
        ELSE coalesce(found_slice.next_pre, (SELECT count(*) + 1 FROM slice)) - 1
      END AS post,
      slice.crosses
    FROM slice
    LEFT JOIN found_slice ON found_slice.pre = slice.pre
  ),
  closing AS (
    SELECT post + 1 AS pre, count(*) AS closed
    FROM spanned
    GROUP BY post
  )
SELECT
  spanned.run_id,
  spanned.rank,
  spanned.event_id,
  spanned.parent_id,
  spanned.pre - (sum(coalesce(closing.closed, 0)) OVER (ORDER BY spanned.pre ROWS UNBOUNDED PRECEDING))::BIGINT AS depth,
  spanned.pre,
  spanned.post,
  spanned.crosses
FROM spanned
LEFT JOIN closing ON closing.pre = spanned.pre
