-- /// tw
-- kind     = "analysis"
-- name     = "collective_algorithms"
-- version  = 1
-- summary  = "Algorithm, protocol and channels that NCCL chose for collectives of each size, as its profiler plug-in records them, and how long their kernels take."
-- requires = ["events@1", "collectives@1", "kernels@1"]
-- needs    = ["gpu", "collectives"]
-- empty    = "no rank was ingested with files of the profiler plug-in of NCCL"
-- grain    = ["run_id", "rank", "communicator", "collective", "bytes", "algorithm", "protocol", "channels"]
-- per      = "window"
-- order    = ["run_id", "rank", "-dur_ns"]
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- rank               = { type = "INTEGER", doc = "The rank." }
-- communicator       = { type = "VARCHAR", null = true, doc = "NCCL's hash of the communicator." }
-- process_group      = { type = "VARCHAR", null = true, doc = "Process group name, if all its collectives of the row have one." }
-- collective         = { type = "VARCHAR", doc = "all_reduce, all_gather, …" }
-- bytes              = { type = "BIGINT", null = true, unit = "bytes", doc = "Message size; null if unknown." }
-- algorithm          = { type = "VARCHAR", null = true, doc = "RING, TREE, NVLS, …; null for sends and receives." }
-- protocol           = { type = "VARCHAR", null = true, doc = "LL, LL128 or SIMPLE; null for sends and receives." }
-- channels           = { type = "BIGINT", null = true, unit = "count", doc = "Number of channels." }
-- collectives        = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Number of kernels." }
-- dur_ns             = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of the durations of the kernels, with the wait for other ranks." }
-- shortest_ns        = { type = "BIGINT", unit = "ns", aggregate = "min", better = "lower", doc = "The shortest duration: least wait." }
-- algbw_bytes_per_ns = { type = "DOUBLE", null = true, unit = "bytes_per_ns", better = "higher", doc = "bytes / shortest_ns." }
-- first_sequence     = { type = "BIGINT", null = true, unit = "id", aggregate = "min", doc = "Least sequence number of NCCL, which counts the collectives of a kind in a communicator." }
-- last_sequence      = { type = "BIGINT", null = true, unit = "id", aggregate = "max", doc = "Greatest sequence number." }
--
-- [changes]
-- 1 = "First version. Untested on real data."
-- ///
WITH
  chosen AS (
    -- NCCL may run several collectives of a group in one kernel: they are alike.
    SELECT
      run_id,
      rank,
      correlation,
      min(args ->> '$.CommHash') AS communicator,
      min(args ->> '$.Algorithm') AS algorithm,
      min(args ->> '$.Protocol') AS protocol,
      max(TRY_CAST(args ->> '$.nChannels' AS BIGINT)) AS channels,
      min(TRY_CAST(args ->> '$.SeqNum' AS BIGINT)) AS first_sequence,
      max(TRY_CAST(args ->> '$.SeqNum' AS BIGINT)) AS last_sequence
    FROM events
    WHERE category = 'user_annotation' AND starts_with(name, 'nccl::') AND correlation IS NOT NULL
    GROUP BY run_id, rank, correlation
  )
SELECT
  chosen.run_id,
  chosen.rank,
  chosen.communicator,
  CASE WHEN count(DISTINCT collectives.process_group) = 1 THEN min(collectives.process_group) END AS process_group,
  collectives.collective,
  collectives.bytes,
  chosen.algorithm,
  chosen.protocol,
  chosen.channels,
  count(*) AS collectives,
  sum(collectives.dur_ns)::BIGINT AS dur_ns,
  min(collectives.dur_ns) AS shortest_ns,
  collectives.bytes / nullif(min(collectives.dur_ns), 0) AS algbw_bytes_per_ns,
  min(chosen.first_sequence) AS first_sequence,
  max(chosen.last_sequence) AS last_sequence
FROM chosen
JOIN kernels USING (run_id, rank, correlation)
JOIN collectives
  ON collectives.run_id = kernels.run_id AND collectives.rank = kernels.rank AND collectives.event_id = kernels.event_id
GROUP BY
  chosen.run_id,
  chosen.rank,
  chosen.communicator,
  collectives.collective,
  collectives.bytes,
  chosen.algorithm,
  chosen.protocol,
  chosen.channels
