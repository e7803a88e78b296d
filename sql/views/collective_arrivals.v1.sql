-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "collective_arrivals"
-- version  = 1
-- summary  = "Each rank's collectives: how long it waited there for the last rank, how long the transfer took, how late it came."
-- requires = ["collective_matches@1", "clock_offsets@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- event_id      = { type = "BIGINT", unit = "id", doc = "The collective on this rank." }
-- on_gpu        = { type = "BOOLEAN", doc = "It ran on the GPU." }
-- device        = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; null on the host." }
-- stream        = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream; null on the host." }
-- collective    = { type = "VARCHAR", doc = "all_reduce, all_gather, …." }
-- waits_for_all = { type = "BOOLEAN", doc = "No rank can leave it before the last one came." }
-- process_group = { type = "VARCHAR", null = true, doc = "Name of the process group; null where the trace does not say." }
-- group_told    = { type = "BOOLEAN", doc = "The trace says which process group it is; else all ranks are taken for it." }
-- group_size    = { type = "BIGINT", null = true, unit = "count", doc = "Ranks in the process group; where it is not told, the world size." }
-- bytes         = { type = "BIGINT", null = true, unit = "bytes", doc = "The larger of what this rank gives and gets." }
-- sequence      = { type = "BIGINT", null = true, unit = "id", doc = "Number of the collective in its process group, as the trace gives it." }
-- step          = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- state         = { type = "VARCHAR", doc = "As `collective_matches` has it; apart too where, on aligned clocks, not all ranks are there at one moment, by more than twice their uncertainty." }
-- members       = { type = "BIGINT", unit = "count", doc = "Ranks that take part; 1 where the state is neither whole nor partial." }
-- meeting       = { type = "VARCHAR", null = true, doc = "What names the collective on all its ranks; null where the state is neither whole nor partial." }
-- start_ns      = { type = "BIGINT", signed = true, unit = "ts", doc = "When this rank was there, by its own clock." }
-- dur_ns        = { type = "BIGINT", unit = "ns", doc = "How long it was there." }
-- wait_ns       = { type = "BIGINT", unit = "ns", null = true, doc = "What it was there longer than the rank that was there shortest: none can leave before the last one came, so it waited. No clocks are compared. Null where the collective does not wait for all, or is matched with no other rank." }
-- transfer_ns   = { type = "BIGINT", unit = "ns", null = true, doc = "The shortest length: what it takes once all are there. With wait_ns it makes dur_ns. Where the state is partial, at most this." }
-- waited_for    = { type = "INTEGER", null = true, doc = "The rank that was there shortest; the lowest of equal ones." }
-- late_ns       = { type = "BIGINT", unit = "ns", null = true, doc = "Start after that of the first rank, on aligned clocks; null where the offset of a rank is not known." }
-- doubt_ns      = { type = "BIGINT", unit = "ns", null = true, doc = "Twice the uncertainty of the two offsets; null where that is not known." }
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
      group_told,
      group_size,
      bytes,
      sequence,
      step,
      start_ns,
      end_ns,
      dur_ns,
      state,
      members,
      meeting,
      shortest_ns,
      waited_for
    FROM collective_matches
  ),
  aligned AS (
    -- Ranks without a common reference share no collective on the GPU: their starts cannot be compared.
    SELECT
      match.run_id,
      match.rank,
      match.event_id,
      match.meeting,
      match.start_ns - clock.offset_ns AS start_ns,
      match.end_ns - clock.offset_ns AS end_ns,
      clock.uncertainty_ns,
      clock.reference_rank
    FROM match
    JOIN clock_offsets AS clock ON clock.run_id = match.run_id AND clock.rank = match.rank
    WHERE match.meeting IS NOT NULL
  ),
  met AS (
    SELECT
      run_id,
      meeting,
      min(reference_rank) = max(reference_rank) AS comparable,
      min(start_ns) AS first_start_ns,
      arg_min_null(uncertainty_ns, (start_ns, rank)) AS first_uncertainty_ns,
      max(start_ns - 2 * coalesce(uncertainty_ns, 0)) > min(end_ns + 2 * coalesce(uncertainty_ns, 0)) AS apart
    FROM aligned
    GROUP BY run_id, meeting
  ),
  arrival AS (
    SELECT
      aligned.run_id,
      aligned.rank,
      aligned.event_id,
      met.comparable AND met.apart AS apart,
      CASE WHEN met.comparable THEN aligned.start_ns - met.first_start_ns END AS late_ns,
      CASE WHEN met.comparable THEN 2 * (aligned.uncertainty_ns + met.first_uncertainty_ns) END AS doubt_ns
    FROM aligned
    JOIN met ON met.run_id = aligned.run_id AND met.meeting = aligned.meeting
  ),
  judged AS (
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
      match.group_told,
      match.group_size,
      match.bytes,
      match.sequence,
      match.step,
      CASE WHEN arrival.apart THEN 'apart' ELSE match.state END AS state,
      match.meeting IS NOT NULL AND NOT coalesce(arrival.apart, FALSE) AS matched,
      match.members,
      match.meeting,
      match.start_ns,
      match.dur_ns,
      match.shortest_ns,
      match.waited_for,
      arrival.late_ns,
      arrival.doubt_ns
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
  group_told,
  group_size,
  bytes,
  sequence,
  step,
  state,
  CASE WHEN matched THEN members ELSE 1 END AS members,
  CASE WHEN matched THEN meeting END AS meeting,
  start_ns,
  dur_ns,
  CASE WHEN matched AND waits_for_all THEN dur_ns - shortest_ns END AS wait_ns,
  CASE WHEN matched AND waits_for_all THEN shortest_ns END AS transfer_ns,
  CASE WHEN matched AND waits_for_all THEN waited_for END AS waited_for,
  CASE WHEN matched THEN late_ns END AS late_ns,
  CASE WHEN matched THEN doubt_ns END AS doubt_ns
FROM judged
