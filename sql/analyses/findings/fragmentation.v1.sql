-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "fragmentation"
-- version  = 1
-- summary  = "Detects GPU memory that is reserved and free, but only in blocks between blocks in use."
-- requires = ["snapshot_segments@1", "snapshot_blocks@1", "snapshot_states@1"]
-- needs    = ["snapshot"]
-- excluded_by = []
-- limited_by = []
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.2 }
-- critical_share = { default = 0.4 }
--
-- [columns]
-- subject     = { doc = "The GPU by number." }
-- share       = { doc = "Free bytes in segments with blocks in use, as a share of reserved bytes, when the snapshot was taken. Expandable segments are left out: their free pages can be released." }
-- count       = { doc = "Number of free blocks in such segments." }
-- steps       = { doc = "Always 0: a snapshot has no steps." }
-- analyzed_ns = { doc = "Time from the first to the last entry of the snapshot, at least 1." }
-- saving_ns   = { doc = "Always null: this is a risk, not lost time." }
-- event_id    = { doc = "Always null: entries of a snapshot are not events." }
-- from_ns     = { doc = "Always null: the rank may have no trace of that time." }
-- to_ns       = { doc = "Always null." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  per_segment AS (
    SELECT
      blocks.run_id,
      blocks.rank,
      blocks.device,
      blocks.segment_address,
      bool_or(blocks.state <> 'inactive') AS is_used,
      coalesce(sum(blocks.bytes) FILTER (blocks.state = 'inactive'), 0)::BIGINT AS free_bytes,
      count(*) FILTER (blocks.state = 'inactive') AS free_blocks,
      coalesce(max(blocks.bytes) FILTER (blocks.state = 'inactive'), 0) AS largest_bytes
    FROM snapshot_blocks AS blocks
    JOIN snapshot_segments AS segments
      ON segments.run_id = blocks.run_id
      AND segments.rank = blocks.rank
      AND segments.device = blocks.device
      AND segments.address = blocks.segment_address
    -- Free pages of expandable segments can be released.
    WHERE segments.expandable IS NOT TRUE
    GROUP BY blocks.run_id, blocks.rank, blocks.device, blocks.segment_address
  ),
  stuck AS (
    SELECT
      run_id,
      rank,
      device,
      coalesce(sum(free_bytes) FILTER (is_used), 0)::BIGINT AS bytes,
      coalesce(sum(free_blocks) FILTER (is_used), 0)::BIGINT AS blocks,
      coalesce(max(largest_bytes) FILTER (is_used), 0) AS largest_bytes
    FROM per_segment
    GROUP BY run_id, rank, device
  ),
  held AS (
    SELECT run_id, rank, device, sum(total_bytes)::BIGINT AS bytes
    FROM snapshot_segments
    GROUP BY run_id, rank, device
  ),
  recorded AS (
    SELECT run_id, rank, device, min(ts_ns) AS from_ns, max(ts_ns) AS to_ns
    FROM snapshot_states
    GROUP BY run_id, rank, device
  ),
  per_device AS (
    SELECT
      held.run_id,
      held.rank,
      held.device,
      coalesce(coalesce(stuck.bytes, 0) / nullif(held.bytes, 0), 0) AS share,
      coalesce(stuck.blocks, 0) AS count,
      greatest(coalesce(recorded.to_ns - recorded.from_ns, 0), 1) AS analyzed_ns,
      [
        CASE
          WHEN (size // 1073741824) > 0 THEN format('{:.1f} GiB', size / 1073741824)
          WHEN (size // 1048576) > 0 THEN format('{:.1f} MiB', size / 1048576)
          WHEN (size // 1024) > 0 THEN format('{:.1f} KiB', size / 1024)
          ELSE size || ' B'
        END
        FOR size IN [coalesce(stuck.bytes, 0), held.bytes, coalesce(stuck.largest_bytes, 0)]
      ] AS sizes
    FROM held
    LEFT JOIN stuck USING (run_id, rank, device)
    LEFT JOIN recorded USING (run_id, rank, device)
  )
SELECT
  run_id,
  rank,
  'GPU ' || device AS subject,
  share >= $warning_share AND count > 0 AS is_finding,
  TRUE AS is_representative,
  share,
  count,
  0::BIGINT AS steps,
  analyzed_ns,
  NULL::BIGINT AS saving_ns,
  'this alone costs no time; a request larger than the free blocks runs out of memory' AS saving_limit,
  sizes[1] || ' of the ' || sizes[2] || ' reserved on GPU ' || device || ' are free but cannot be released: ' || count || CASE count WHEN 1 THEN ' block of ' ELSE ' blocks of at most ' END || sizes[3] || ' between blocks in use.' AS observation,
  'Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and avoid sizes that vary from step to step: pad or bucket sequence lengths.' AS advice,
  'snapshot_fragmentation' AS evidence,
  'device = ' || device AS evidence_filter,
  NULL::BIGINT AS event_id,
  NULL::BIGINT AS from_ns,
  NULL::BIGINT AS to_ns
FROM per_device
