-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "collective_instances"
-- version  = 1
-- summary  = "Collectives with all their ranks, one row each: message size, transfer time, algorithm and bus bandwidth."
-- requires = ["collective_arrivals@1", "collectives@1", "alltoall_splits@1", "clock_resolution@1", "ranks@1"]
-- grain    = ["run_id", "instance_id"]
-- order    = ["run_id", "instance_id"]
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- instance_id        = { type = "VARCHAR", doc = "Key of the collective instance; only those in which all ranks of the group take part." }
-- group_key          = { type = "VARCHAR", doc = "Process group, as in `collective_groups`; `all ranks` if all ranks are assumed." }
-- collective         = { type = "VARCHAR", doc = "all_reduce, all_gather, …; all_to_all_v for an all_to_all whose recorded splits are uneven; send for a send and its receive." }
-- dtype              = { type = "VARCHAR", null = true, doc = "Element type." }
-- step               = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step, on the lowest rank." }
-- start_ns           = { type = "BIGINT", unit = "ts", signed = true, doc = "Start on the lowest rank, on its clock." }
-- dur_ns             = { type = "BIGINT", unit = "ns", doc = "Longest duration on any rank; wait_ns + transfer_ns." }
-- ranks              = { type = "INTEGER[]", doc = "The ranks that take part, ascending." }
-- members            = { type = "BIGINT", unit = "count", doc = "Number of ranks." }
-- hosts              = { type = "VARCHAR[]", null = true, doc = "The hosts that they run on, sorted; null if the host of a rank is unknown." }
-- message_bytes      = { type = "BIGINT", unit = "bytes", null = true, doc = "Message size by the convention of nccl-tests: for all_gather the output, for reduce_scatter the input, for gather and scatter the chunks of all ranks, for all_to_all_v the most that a rank sends to or receives from other ranks, otherwise the larger buffer of a rank. Null if the trace has no sizes, and for barrier." }
-- wait_ns            = { type = "BIGINT", unit = "ns", null = true, doc = "Longest wait of any rank (skew); null like transfer_ns." }
-- last_rank          = { type = "INTEGER", null = true, doc = "The rank that arrived last; null like transfer_ns." }
-- transfer_ns        = { type = "BIGINT", unit = "ns", null = true, doc = "Shortest duration of any rank: the time once all ranks have arrived; for send, the duration of the receive without its wait. Null if a rank may leave before the last one arrives (broadcast, reduce, gather, scatter)." }
-- resolution_ns      = { type = "BIGINT", unit = "ns", null = true, doc = "Coarsest time resolution of a participating trace; transfer_ns is uncertain by that much." }
-- algbw_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Algorithm bandwidth: message_bytes / transfer_ns; GB/s with 1 GB = 10^9 bytes." }
-- busbw_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Bus bandwidth: algbw_bytes_per_ns × 2(n-1)/n for all_reduce, × (n-1)/n for all_gather, reduce_scatter, all_to_all, gather and scatter, × 1 for all_to_all_v, broadcast, reduce and send." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  split AS (
    SELECT
      run_id,
      rank,
      event_id,
      min(in_share) < max(in_share) OR min(out_share) < max(out_share) AS is_uneven,
      1 - max(in_share) FILTER (peer = rank) AS sent_share,
      1 - max(out_share) FILTER (peer = rank) AS received_share
    FROM alltoall_splits
    GROUP BY run_id, rank, event_id
  ),
  member AS (
    SELECT
      arrival.run_id,
      arrival.rank,
      arrival.instance_id,
      arrival.members,
      arrival.start_ns,
      arrival.dur_ns,
      coalesce(arrival.wait_ns, arrival.pair_wait_ns) AS wait_ns,
      CASE
        WHEN arrival.direction = 'receive' THEN arrival.dur_ns - arrival.pair_wait_ns
        ELSE arrival.transfer_ns
      END AS transfer_ns,
      CASE WHEN arrival.possible_wait_ns IS NULL THEN arrival.last_rank END AS last_rank,
      coalesce(arrival.group_key, 'all ranks') AS group_key,
      CASE WHEN arrival.direction IS NULL THEN collectives.collective ELSE 'send' END AS collective,
      collectives.dtype,
      collectives.step,
      collectives.bytes,
      collectives.bytes // nullif(greatest(collectives.in_elements, collectives.out_elements), 0) AS element_bytes,
      collectives.in_elements,
      collectives.out_elements,
      coalesce(split.is_uneven, FALSE) AS is_uneven,
      split.sent_share,
      split.received_share,
      clock_resolution.resolution_ns,
      ranks.host
    FROM collective_arrivals AS arrival
    JOIN collectives USING (run_id, rank, event_id)
    JOIN ranks USING (run_id, rank)
    LEFT JOIN split USING (run_id, rank, event_id)
    LEFT JOIN clock_resolution USING (run_id, rank)
    WHERE arrival.state = 'complete' AND arrival.instance_id IS NOT NULL
  ),
  instance AS (
    SELECT
      run_id,
      instance_id,
      min(group_key) AS group_key,
      CASE WHEN bool_or(is_uneven) THEN 'all_to_all_v' ELSE min(collective) END AS collective,
      arg_min_null(dtype, rank) AS dtype,
      arg_min_null(step, rank) AS step,
      arg_min(start_ns, rank) AS start_ns,
      max(dur_ns) AS dur_ns,
      list(rank ORDER BY rank) AS ranks,
      max(members) AS members,
      CASE WHEN count(host) = count(*) THEN list_sort(list(DISTINCT host)) END AS hosts,
      max(
        CASE
          WHEN collective = 'barrier' THEN NULL
          WHEN is_uneven THEN
            round(element_bytes * greatest(in_elements * sent_share, out_elements * received_share))::BIGINT
          WHEN collective = 'all_gather' AND out_elements IS NULL THEN members * bytes
          WHEN collective = 'reduce_scatter' AND in_elements IS NULL THEN members * bytes
          WHEN collective = 'gather' THEN members * in_elements * element_bytes
          WHEN collective = 'scatter' THEN members * out_elements * element_bytes
          ELSE bytes
        END
      ) AS message_bytes,
      max(wait_ns) AS wait_ns,
      min(last_rank) AS last_rank,
      max(transfer_ns) AS transfer_ns,
      max(resolution_ns) AS resolution_ns
    FROM member
    GROUP BY run_id, instance_id
  )
SELECT
  run_id,
  instance_id,
  group_key,
  collective,
  dtype,
  step,
  start_ns,
  dur_ns,
  ranks,
  members,
  hosts,
  message_bytes,
  wait_ns,
  last_rank,
  transfer_ns,
  resolution_ns,
  message_bytes / nullif(transfer_ns, 0) AS algbw_bytes_per_ns,
  CASE
    WHEN collective = 'all_reduce' THEN 2 * (members - 1) / members
    WHEN collective IN ('all_gather', 'reduce_scatter', 'all_to_all', 'gather', 'scatter') THEN (members - 1) / members
    WHEN collective IN ('all_to_all_v', 'broadcast', 'reduce', 'send') THEN 1.0
  END
  * message_bytes
  / nullif(transfer_ns, 0) AS busbw_bytes_per_ns
FROM instance
