-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "collective_arrivals"
-- version  = 1
-- summary  = "Collectives per rank, matched across ranks, with wait time, transfer time and lateness."
-- requires = ["collective_matches@1", "clock_offsets@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- event_id       = { type = "BIGINT", unit = "id", doc = "The collective on this rank." }
-- on_gpu         = { type = "BOOLEAN", doc = "True if it ran on the GPU." }
-- device         = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; null for host collectives." }
-- stream         = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream; null for host collectives." }
-- collective     = { type = "VARCHAR", doc = "Collective operation: all_reduce, all_gather, …." }
-- waits_for_all  = { type = "BOOLEAN", doc = "True if no rank can leave it before the last one arrives (a synchronizing collective)." }
-- process_group  = { type = "VARCHAR", null = true, doc = "Process group name; null if unknown." }
-- group_known    = { type = "BOOLEAN", doc = "True if the trace names the process group or lists only one; false if all ranks are assumed to be members." }
-- group_size     = { type = "BIGINT", null = true, unit = "count", doc = "Number of ranks in the process group; the world size if unknown." }
-- bytes          = { type = "BIGINT", null = true, unit = "bytes", doc = "Larger of the input and output sizes on this rank." }
-- sequence       = { type = "BIGINT", null = true, unit = "id", doc = "Sequence number within the process group, as recorded in the trace." }
-- step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- state          = { type = "VARCHAR", doc = "As in `collective_matches`; also inconsistent_clocks if, on aligned clocks, there is no moment at which all ranks are in it, by more than twice their uncertainty." }
-- members        = { type = "BIGINT", unit = "count", doc = "Ranks that take part; 1 unless the state is complete or partial." }
-- instance_id    = { type = "VARCHAR", null = true, doc = "Key of the collective instance, equal on all its ranks; null unless the state is complete or partial." }
-- start_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "Start on this rank's clock." }
-- dur_ns         = { type = "BIGINT", unit = "ns", doc = "Duration on this rank." }
-- wait_ns        = { type = "BIGINT", unit = "ns", null = true, doc = "Wait time: its duration minus the shortest duration of any rank. No rank can leave before the last one arrives, so no clocks are compared. Null if the collective does not synchronize or is not matched with another rank." }
-- transfer_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "Shortest duration of any rank: the time the collective takes once all ranks have arrived. wait_ns + transfer_ns = dur_ns. An upper bound if the state is partial." }
-- straggler_rank = { type = "INTEGER", null = true, doc = "The rank with the shortest duration, which arrived last; the lowest rank on ties." }
-- late_ns        = { type = "BIGINT", unit = "ns", null = true, doc = "Start minus the start of the first rank, on aligned clocks; null if not matched or if a clock offset is unknown." }
-- uncertainty_ns = { type = "BIGINT", unit = "ns", null = true, doc = "Twice the summed uncertainty of the two clock offsets; null if unknown." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  match AS (
    SELECT
      run_id,
      rank,
      event_id,
      on_gpu,
      device,
      stream,
      collective,
      waits_for_all,
      process_group,
      group_known,
      group_size,
      bytes,
      sequence,
      step,
      start_ns,
      end_ns,
      dur_ns,
      state,
      members,
      instance_id,
      shortest_ns,
      straggler_rank
    FROM collective_matches
  ),
  aligned AS (
    -- Ranks without a common reference share no collective on the GPU, so their starts cannot be compared.
    SELECT
      match.run_id,
      match.rank,
      match.event_id,
      match.instance_id,
      match.start_ns - clock.offset_ns AS start_ns,
      match.end_ns - clock.offset_ns AS end_ns,
      clock.uncertainty_ns,
      clock.reference_rank
    FROM match
    JOIN clock_offsets AS clock ON clock.run_id = match.run_id AND clock.rank = match.rank
    WHERE match.instance_id IS NOT NULL
  ),
  instance AS (
    SELECT
      run_id,
      instance_id,
      min(reference_rank) = max(reference_rank) AS comparable,
      min(start_ns) AS first_start_ns,
      arg_min_null(uncertainty_ns, (start_ns, rank)) AS first_uncertainty_ns,
      max(start_ns - 2 * coalesce(uncertainty_ns, 0)) > min(end_ns + 2 * coalesce(uncertainty_ns, 0)) AS inconsistent
    FROM aligned
    GROUP BY run_id, instance_id
  ),
  arrival AS (
    SELECT
      aligned.run_id,
      aligned.rank,
      aligned.event_id,
      instance.comparable AND instance.inconsistent AS inconsistent,
      CASE WHEN instance.comparable THEN aligned.start_ns - instance.first_start_ns END AS late_ns,
      CASE WHEN instance.comparable THEN 2 * (aligned.uncertainty_ns + instance.first_uncertainty_ns) END AS uncertainty_ns
    FROM aligned
    JOIN instance ON instance.run_id = aligned.run_id AND instance.instance_id = aligned.instance_id
  ),
  result AS (
    SELECT
      match.run_id,
      match.rank,
      match.event_id,
      match.on_gpu,
      match.device,
      match.stream,
      match.collective,
      match.waits_for_all,
      match.process_group,
      match.group_known,
      match.group_size,
      match.bytes,
      match.sequence,
      match.step,
      CASE WHEN arrival.inconsistent THEN 'inconsistent_clocks' ELSE match.state END AS state,
      match.instance_id IS NOT NULL AND NOT coalesce(arrival.inconsistent, FALSE) AS matched,
      match.members,
      match.instance_id,
      match.start_ns,
      match.dur_ns,
      match.shortest_ns,
      match.straggler_rank,
      arrival.late_ns,
      arrival.uncertainty_ns
    FROM match
    LEFT JOIN arrival
      ON arrival.run_id = match.run_id AND arrival.rank = match.rank AND arrival.event_id = match.event_id
  )
SELECT
  run_id,
  rank,
  event_id,
  on_gpu,
  device,
  stream,
  collective,
  waits_for_all,
  process_group,
  group_known,
  group_size,
  bytes,
  sequence,
  step,
  state,
  CASE WHEN matched THEN members ELSE 1 END AS members,
  CASE WHEN matched THEN instance_id END AS instance_id,
  start_ns,
  dur_ns,
  CASE WHEN matched AND waits_for_all THEN dur_ns - shortest_ns END AS wait_ns,
  CASE WHEN matched AND waits_for_all THEN shortest_ns END AS transfer_ns,
  CASE WHEN matched AND waits_for_all THEN straggler_rank END AS straggler_rank,
  CASE WHEN matched THEN late_ns END AS late_ns,
  CASE WHEN matched THEN uncertainty_ns END AS uncertainty_ns
FROM result
