-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "oom_explained"
-- version  = 1
-- summary  = "Explains allocations that failed: fragmentation, other processes or capacity."
-- requires = ["snapshot_failures@1", "snapshot_states@1", "snapshot_stacks@1"]
-- needs    = ["snapshot"]
-- excluded_by = []
-- limited_by = []
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0 }
-- critical_share = { default = 0 }
--
-- [columns]
-- subject     = { doc = "The GPU by number." }
-- share       = { doc = "1 if an allocation failed, else 0." }
-- count       = { doc = "Number of failed allocations." }
-- steps       = { doc = "Always 0: a snapshot has no steps." }
-- analyzed_ns = { doc = "Time from the first to the last entry of the snapshot, at least 1." }
-- saving_ns   = { doc = "Always null: a failure is not lost time." }
-- event_id    = { doc = "Always null: entries of a snapshot are not events." }
-- from_ns     = { doc = "Always null: the rank may have no trace of that time." }
-- to_ns       = { doc = "Always null." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  first AS (
    SELECT
      run_id,
      rank,
      device,
      count(*) AS count,
      min(entry) AS entry
    FROM snapshot_failures
    GROUP BY run_id, rank, device
  ),
  recorded AS (
    SELECT run_id, rank, device, min(ts_ns) AS from_ns, max(ts_ns) AS to_ns
    FROM snapshot_states
    GROUP BY run_id, rank, device
  ),
  per_device AS (
    SELECT
      recorded.run_id,
      recorded.rank,
      recorded.device,
      coalesce(first.count, 0) AS count,
      greatest(coalesce(recorded.to_ns - recorded.from_ns, 0), 1) AS analyzed_ns,
      failure.free_in_cache_bytes >= failure.requested_bytes AND failure.requested_bytes > failure.largest_free_bytes AS is_fragmented,
      stack.top_frame,
      [
        CASE
          WHEN (size // 1073741824) > 0 THEN format('{:.1f} GiB', size / 1073741824)
          WHEN (size // 1048576) > 0 THEN format('{:.1f} MiB', size / 1048576)
          WHEN (size // 1024) > 0 THEN format('{:.1f} KiB', size / 1024)
          ELSE size || ' B'
        END
        FOR size IN [
          failure.requested_bytes,
          failure.free_in_cache_bytes,
          failure.largest_free_bytes,
          failure.active_bytes,
          failure.reserved_bytes,
          coalesce(failure.device_free_bytes, 0)
        ]
      ] AS sizes
    FROM recorded
    LEFT JOIN first USING (run_id, rank, device)
    LEFT JOIN snapshot_failures AS failure
      ON failure.run_id = first.run_id
      AND failure.rank = first.rank
      AND failure.device = first.device
      AND failure.entry = first.entry
    LEFT JOIN snapshot_stacks AS stack
      ON stack.run_id = failure.run_id AND stack.rank = failure.rank AND stack.stack_id = failure.stack_id
  )
SELECT
  run_id,
  rank,
  'GPU ' || device AS subject,
  count > 0 AS is_finding,
  TRUE AS is_representative,
  least(count, 1)::DOUBLE AS share,
  count,
  0::BIGINT AS steps,
  analyzed_ns,
  NULL::BIGINT AS saving_ns,
  'a failed allocation ends the job, or costs a retry' AS saving_limit,
  CASE
    WHEN is_fragmented
      THEN 'GPU ' || device || ' ran out of memory by fragmentation: ' || sizes[1] || ' were requested, ' || sizes[2] || ' were reserved and free, but in blocks of at most ' || sizes[3] || '.'
    ELSE 'GPU ' || device || ' ran out of memory: ' || sizes[1] || ' were requested while ' || sizes[4] || ' were in use of ' || sizes[5] || ' reserved, and the device had ' || sizes[6] || ' left.'
  END AS observation,
  CASE
    WHEN is_fragmented THEN 'Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and avoid sizes that vary from step to step: pad or bucket sequence lengths.'
    ELSE 'Check who holds the peak (snapshot_peak) and whether other processes use the GPU (snapshot_oom with device_memory_bytes). Recompute activations, lower the precision, shard parameters and optimizer state, or use a smaller batch.'
  END AS advice,
  'snapshot_oom' AS evidence,
  'device = ' || device AS evidence_filter,
  NULL::BIGINT AS event_id,
  NULL::BIGINT AS from_ns,
  NULL::BIGINT AS to_ns,
  top_frame AS culprit
FROM per_device
