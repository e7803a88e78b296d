-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "collective_arrivals"
-- version  = 1
-- summary  = "Collectives per rank, matched across ranks, with wait time, transfer time and lateness."
-- requires = ["collective_matches@1", "clock_offsets@1", "common_windows@1"]
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
-- group_known    = { type = "BOOLEAN", doc = "True if the process group is known, from any evidence, or the trace lists only one; false if all ranks are assumed to be members, or it is unknown." }
-- group_source   = { type = "VARCHAR", doc = "Evidence for the process group: reported, size, elimination, all_ranks or unknown, as in `collective_groups`." }
-- group_key      = { type = "VARCHAR", null = true, doc = "Key of the process group, as in `collective_groups`." }
-- group_ranks    = { type = "VARCHAR", null = true, doc = "Ranks of the group as a JSON list; null if not known." }
-- group_size     = { type = "BIGINT", null = true, unit = "count", doc = "Number of ranks in the process group; the world size if all ranks are assumed; null if unknown." }
-- direction      = { type = "VARCHAR", null = true, doc = "send or receive; null for other collectives." }
-- peer           = { type = "INTEGER", null = true, doc = "The other rank of a send or receive; null if unknown. Untested on real data: the traces at hand have no matched sends and receives." }
-- bytes          = { type = "BIGINT", null = true, unit = "bytes", doc = "Larger of the input and output sizes on this rank." }
-- sequence       = { type = "BIGINT", null = true, unit = "id", doc = "Sequence number within the process group, as recorded in the trace. Untested on real data: the traces at hand record none." }
-- step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- state          = { type = "VARCHAR", doc = "As in `collective_matches`; also late_start if a rank was in it before all ranks of the run were recording, so that nothing follows from the wait for it; and inconsistent_clocks if, on aligned clocks, there is no moment at which all ranks are in it, by more than twice their uncertainty." }
-- members        = { type = "BIGINT", unit = "count", doc = "Ranks that take part; 1 unless the state is complete or partial." }
-- instance_id    = { type = "VARCHAR", null = true, doc = "Key of the collective instance, equal on all its ranks; null unless the state is complete or partial." }
-- start_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "Start on this rank's clock." }
-- dur_ns         = { type = "BIGINT", unit = "ns", doc = "Duration on this rank." }
-- wait_ns        = { type = "BIGINT", unit = "ns", null = true, doc = "Wait time: its duration minus the shortest duration of any rank. No rank can leave before the last one arrives, so no clocks are compared. Null if the collective does not synchronize or is not matched with another rank." }
-- transfer_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "Shortest duration of any rank: the time the collective takes once all ranks have arrived. wait_ns + transfer_ns = dur_ns. An upper bound if the state is partial." }
-- straggler_rank = { type = "INTEGER", null = true, doc = "The rank with the shortest duration, which arrived last; the lowest rank on ties." }
-- pair_wait_ns   = { type = "BIGINT", unit = "ns", null = true, doc = "Wait for the other rank of a send or receive. A receive waits from its start until the send starts. A send waits until the receive starts; 0 if it had started. If both end at the same time, this is the duration minus the shorter one, so no clocks are compared. Null if not matched, or if a send returned before the receive started (an eager copy)." }
-- possible_wait_ns = { type = "BIGINT", unit = "ns", null = true, doc = "Duration minus the shortest duration of any rank, for collectives that a rank may leave before the last one arrives (broadcast, gather, …): an upper bound on the wait. Null for others and if not matched." }
-- last_rank      = { type = "INTEGER", null = true, doc = "The rank that the others waited for: straggler_rank; of a send and receive the one that started later; for possible_wait_ns the rank with the shortest duration. The lowest rank on ties. Null if not matched, or if it is unknown." }
-- aligned_start_ns = { type = "BIGINT", unit = "ts", signed = true, null = true, doc = "Start on the clock of reference_rank; null if not matched." }
-- reference_rank = { type = "INTEGER", null = true, doc = "The rank whose clock aligned_start_ns is on (`clock_offsets`); null if the ranks of the collective have no common one." }
-- late_ns        = { type = "BIGINT", unit = "ns", null = true, doc = "Start minus the start of the first rank, on aligned clocks; null if not matched or if a clock offset is unknown." }
-- uncertainty_ns = { type = "BIGINT", unit = "ns", null = true, doc = "Twice the summed uncertainty of the two clock offsets; null if unknown." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  aligned AS (
    -- Ranks without a common reference share no collective on the GPU, so their starts cannot be compared.
    SELECT
      match.run_id,
      match.rank,
      match.event_id,
      match.instance_id,
      match.direction,
      match.dur_ns,
      match.start_ns - clock.offset_ns AS start_ns,
      match.end_ns - clock.offset_ns AS end_ns,
      clock.uncertainty_ns,
      clock.reference_rank
    FROM collective_matches AS match
    JOIN clock_offsets AS clock USING (run_id, rank)
    WHERE match.instance_id IS NOT NULL
  ),
  early AS (
    SELECT DISTINCT match.run_id, match.instance_id
    FROM collective_matches AS match
    JOIN common_windows AS common USING (run_id, rank)
    WHERE match.instance_id IS NOT NULL AND match.start_ns < common.from_ns
  ),
  instance AS (
    SELECT
      run_id,
      instance_id,
      min(reference_rank) = max(reference_rank) AS comparable,
      any_value(start_ns) FILTER (direction = 'send') AS send_ns,
      any_value(end_ns) FILTER (direction = 'send') AS send_end_ns,
      any_value(start_ns) FILTER (direction = 'receive') AS receive_ns,
      -- Both ends of a transfer leave together unless the sender copied its data and returned.
      any_value(direction) IS NOT NULL AND max(end_ns) - min(end_ns) <= 2 * sum(coalesce(uncertainty_ns, 0)) AS ends_together,
      arg_max(rank, (start_ns, -rank)) AS started_last,
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
      instance.comparable AND instance.inconsistent AND aligned.direction IS NULL AS inconsistent,
      CASE WHEN instance.comparable THEN aligned.reference_rank END AS reference_rank,
      CASE WHEN instance.comparable THEN aligned.start_ns END AS aligned_start_ns,
      instance.ends_together OR NOT instance.comparable AS ends_together,
      instance.started_last,
      CASE
        WHEN aligned.direction = 'receive' THEN least(greatest(instance.send_ns - aligned.start_ns, 0), aligned.dur_ns)
        WHEN instance.receive_ns <= aligned.start_ns THEN 0
        WHEN instance.send_end_ns >= instance.receive_ns THEN instance.receive_ns - aligned.start_ns
      END AS started_wait_ns,
      CASE WHEN instance.comparable THEN aligned.start_ns - instance.first_start_ns END AS late_ns,
      CASE WHEN instance.comparable THEN 2 * (aligned.uncertainty_ns + instance.first_uncertainty_ns) END AS uncertainty_ns
    FROM aligned
    JOIN instance USING (run_id, instance_id)
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
      match.group_source,
      match.group_key,
      match.group_ranks,
      match.group_size,
      match.direction,
      match.peer,
      match.bytes,
      match.sequence,
      match.step,
      CASE
        WHEN early.instance_id IS NOT NULL THEN 'late_start'
        WHEN arrival.inconsistent THEN 'inconsistent_clocks'
        ELSE match.state
      END AS state,
      match.instance_id IS NOT NULL AND early.instance_id IS NULL AND NOT coalesce(arrival.inconsistent, FALSE) AS matched,
      match.members,
      match.instance_id,
      match.start_ns,
      match.dur_ns,
      match.shortest_ns,
      match.straggler_rank,
      CASE
        WHEN match.direction IS NULL THEN NULL
        WHEN arrival.ends_together THEN match.dur_ns - match.shortest_ns
        ELSE arrival.started_wait_ns
      END AS pair_wait_ns,
      CASE
        WHEN match.direction IS NULL OR arrival.ends_together THEN match.straggler_rank
        ELSE arrival.started_last
      END AS last_rank,
      arrival.aligned_start_ns,
      arrival.reference_rank,
      arrival.late_ns,
      arrival.uncertainty_ns
    FROM collective_matches AS match
    LEFT JOIN arrival USING (run_id, rank, event_id)
    LEFT JOIN early USING (run_id, instance_id)
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
  group_source,
  group_key,
  group_ranks,
  group_size,
  direction,
  peer,
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
  CASE WHEN matched THEN pair_wait_ns END AS pair_wait_ns,
  CASE WHEN matched AND NOT waits_for_all AND direction IS NULL THEN dur_ns - shortest_ns END AS possible_wait_ns,
  CASE WHEN matched THEN last_rank END AS last_rank,
  CASE WHEN matched THEN aligned_start_ns END AS aligned_start_ns,
  CASE WHEN matched THEN reference_rank END AS reference_rank,
  CASE WHEN matched THEN late_ns END AS late_ns,
  CASE WHEN matched THEN uncertainty_ns END AS uncertainty_ns
FROM result
