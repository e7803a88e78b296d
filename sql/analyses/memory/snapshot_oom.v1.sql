-- /// tw
-- kind     = "analysis"
-- name     = "snapshot_oom"
-- version  = 1
-- summary  = "Why an allocation failed: fragmentation, other processes or capacity, with the numbers at that moment."
-- requires = ["snapshot_failures@1", "snapshot_stacks@1", "recorded_devices@1"]
-- needs    = ["snapshot"]
-- empty    = "these snapshots record no failed allocation"
-- grain    = ["run_id", "rank", "device", "entry"]
-- order    = ["run_id", "rank", "device", "entry"]
--
-- [params]
-- device_memory_bytes = { type = "BIGINT", default = 0, unit = "bytes", min = 0, doc = "Memory size of each device; 0: as in the header of the rank's trace." }
-- other_share         = { type = "DOUBLE", default = 0.1, unit = "ratio", min = 0, doc = "Lowest share of the device held by others that explains a failure." }
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- device              = { type = "BIGINT", unit = "id", doc = "The device." }
-- entry               = { type = "BIGINT", unit = "id", doc = "The entry of the failed allocation." }
-- ts_ns               = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Timestamp." }
-- verdict             = { type = "VARCHAR", doc = "fragmentation: enough memory was free in the allocator, but not in one block. other_processes: memory that this process does not hold would have been enough. capacity: neither; what is in use and the request do not fit." }
-- requested_bytes     = { type = "BIGINT", unit = "bytes", doc = "Bytes requested, rounded up to 512." }
-- device_free_bytes   = { type = "BIGINT", unit = "bytes", null = true, doc = "Bytes of the device that no process had reserved." }
-- reserved_bytes      = { type = "BIGINT", unit = "bytes", signed = true, doc = "Bytes that the allocator held." }
-- active_bytes        = { type = "BIGINT", unit = "bytes", signed = true, doc = "Bytes requested for blocks in use." }
-- free_in_cache_bytes = { type = "BIGINT", unit = "bytes", doc = "Bytes of free blocks: reserved, but not in use." }
-- largest_free_bytes  = { type = "BIGINT", unit = "bytes", doc = "The largest free block." }
-- free_blocks         = { type = "BIGINT", unit = "count", doc = "Number of free blocks." }
-- device_bytes        = { type = "BIGINT", unit = "bytes", null = true, doc = "Memory of the device: the parameter, else as in the header of the rank's trace; null if unknown." }
-- other_bytes         = { type = "BIGINT", unit = "bytes", null = true, signed = true, doc = "Memory of the device that is neither free nor held by the allocator: other processes, CUDA contexts and libraries. Null if unknown." }
-- reason              = { type = "VARCHAR", null = true, doc = "Why other_bytes is null." }
-- top_frame           = { type = "VARCHAR", null = true, doc = "Where the failed allocation was requested: innermost Python frame outside of PyTorch." }
-- category            = { type = "VARCHAR", doc = "What it is for, by its call stack; unknown without a stack." }
-- explanation         = { type = "VARCHAR", doc = "The verdict in one sentence, with its numbers." }
-- advice              = { type = "VARCHAR", doc = "What to try." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  explained AS (
    SELECT
      failure.run_id,
      failure.rank,
      failure.device,
      failure.entry,
      failure.ts_ns,
      failure.stack_id,
      failure.requested_bytes,
      failure.device_free_bytes,
      failure.reserved_bytes,
      failure.active_bytes,
      failure.free_in_cache_bytes,
      failure.largest_free_bytes,
      failure.free_blocks,
      coalesce(nullif($device_memory_bytes, 0), capacity.memory_bytes) AS device_bytes,
      device_bytes - failure.reserved_bytes - failure.device_free_bytes AS other_bytes,
      CASE
        WHEN free_in_cache_bytes >= requested_bytes AND requested_bytes > largest_free_bytes THEN 'fragmentation'
        WHEN coalesce(other_bytes > $other_share * device_bytes AND other_bytes + device_free_bytes >= requested_bytes, FALSE)
          THEN 'other_processes'
        ELSE 'capacity'
      END AS verdict,
      [
        CASE
          WHEN size IS NULL THEN 'an unknown amount'
          WHEN (size // 1073741824) > 0 THEN format('{:.1f} GiB', size / 1073741824)
          WHEN (size // 1048576) > 0 THEN format('{:.1f} MiB', size / 1048576)
          WHEN (size // 1024) > 0 THEN format('{:.1f} KiB', size / 1024)
          ELSE size || ' B'
        END
        FOR size IN [
          requested_bytes,
          device_free_bytes,
          free_in_cache_bytes,
          largest_free_bytes,
          other_bytes,
          device_bytes,
          reserved_bytes,
          active_bytes
        ]
      ] AS sizes
    FROM snapshot_failures AS failure
    LEFT JOIN recorded_devices AS capacity USING (run_id, rank, device)
  )
SELECT
  failure.run_id,
  failure.rank,
  failure.device,
  failure.entry,
  failure.ts_ns,
  failure.verdict,
  failure.requested_bytes,
  failure.device_free_bytes,
  failure.reserved_bytes,
  failure.active_bytes,
  failure.free_in_cache_bytes,
  failure.largest_free_bytes,
  failure.free_blocks,
  failure.device_bytes,
  failure.other_bytes,
  CASE
    WHEN failure.other_bytes IS NOT NULL THEN NULL
    WHEN failure.device_free_bytes IS NULL THEN 'the free memory of the device was not recorded'
    ELSE 'the memory size of the device is unknown: set device_memory_bytes'
  END AS reason,
  stack.top_frame,
  coalesce(stack.category, 'unknown') AS category,
  CASE failure.verdict
    WHEN 'fragmentation'
      THEN failure.sizes[1] || ' were requested on GPU ' || failure.device
        || ': '
        || failure.sizes[3]
        || ' were reserved and free, but in '
        || free_blocks
        || ' blocks of at most '
        || failure.sizes[4]
        || '; the device had '
        || failure.sizes[2]
        || ' left.'
    WHEN 'other_processes'
      THEN failure.sizes[1] || ' were requested on GPU ' || failure.device
        || ': '
        || failure.sizes[5]
        || ' of the '
        || failure.sizes[6]
        || ' are held by other processes, CUDA contexts or libraries; this process had reserved '
        || failure.sizes[7]
        || ', and '
        || failure.sizes[2]
        || ' were left.'
    ELSE failure.sizes[1] || ' were requested on GPU ' || failure.device
      || ': '
      || failure.sizes[8]
      || ' were in use of '
      || failure.sizes[7]
      || ' reserved; '
      || failure.sizes[3]
      || ' were free in the allocator (largest block '
      || failure.sizes[4]
      || ') and '
      || failure.sizes[2]
      || ' on the device.'
  END AS explanation,
  CASE failure.verdict
    WHEN 'fragmentation'
      THEN 'Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; avoid sizes that vary from step to step (pad or bucket them); see snapshot_fragmentation.'
    WHEN 'other_processes' THEN 'End the other processes on this GPU, or use another one; nvidia-smi lists them.'
    ELSE 'See snapshot_peak for what holds the memory. Recompute activations (checkpointing), lower the precision, shard parameters and optimizer state, or use a smaller batch.'
  END AS advice
FROM explained AS failure
LEFT JOIN snapshot_stacks AS stack USING (run_id, rank, stack_id)
