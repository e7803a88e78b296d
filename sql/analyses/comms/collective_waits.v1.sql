-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "collective_waits"
-- version  = 1
-- summary  = "Wait time, transfer time and lateness of each rank at each collective."
-- requires = ["collective_arrivals@1"]
-- needs    = ["collectives", "ranks>=2"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "-wait_ns"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- event_id       = { type = "BIGINT", unit = "id", doc = "The collective on this rank: a GPU activity or, on the host (gloo, MPI), the backend's annotation." }
-- collective     = { type = "VARCHAR", doc = "all_reduce, all_gather, …; other if the name is not recognized." }
-- process_group  = { type = "VARCHAR", null = true, doc = "Process group name; null if unknown." }
-- group_source   = { type = "VARCHAR", doc = "Evidence for the process group: reported, size, elimination (only this group of the headers fits), all_ranks (assumed) or unknown, as in `collective_groups`." }
-- direction      = { type = "VARCHAR", null = true, doc = "send or receive; null for other collectives." }
-- peer           = { type = "INTEGER", null = true, doc = "The other rank of a send or receive; null if unknown. Untested on real data: the traces at hand have no matched sends and receives." }
-- sequence       = { type = "BIGINT", null = true, unit = "id", doc = "Sequence number within the process group, as recorded in the trace. Untested on real data: the traces at hand record none." }
-- step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- bytes          = { type = "BIGINT", null = true, unit = "bytes", doc = "Larger of the input and output sizes on this rank." }
-- instance_id    = { type = "VARCHAR", null = true, doc = "Key of the collective instance, equal on all its ranks: group, collective with its sequence number or step and size, and position among equal ones; null if not matched." }
-- state          = { type = "VARCHAR", doc = "complete: all ranks of the group take part; partial: at least two. Not matched: unmatched (only this rank); ambiguous (ranks have different numbers of such collectives in the same step, or a rank has two at the same position, or more ranks take part than the group has); inconsistent_clocks (on no consistent clock offsets do all ranks overlap in it); coalesced (several sends and receives in one activity); unknown_group (several process groups are possible)." }
-- members        = { type = "BIGINT", unit = "count", doc = "Ranks that take part; 1 if not matched." }
-- start_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "Start on this rank's clock." }
-- dur_ns         = { type = "BIGINT", unit = "ns", better = "lower", doc = "Duration on this rank." }
-- wait_ns        = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Wait time: its duration minus the shortest duration of any rank, so no clocks are compared. Null if not matched, or if a rank can leave before the last one arrives (broadcast, send, receive, …)." }
-- transfer_ns    = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Shortest duration of any rank; wait_ns + transfer_ns = dur_ns. An upper bound on the transfer time if the state is partial." }
-- straggler_rank = { type = "INTEGER", null = true, doc = "The rank with the shortest duration, which arrived last; the lowest rank on ties." }
-- pair_wait_ns   = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "Wait for the other rank of a send or receive (`collective_arrivals` says how it is measured); null for others, if not matched, or if a send returned before the receive started." }
-- possible_wait_ns = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "For collectives that a rank may leave before the last one arrives (broadcast, gather, …): duration minus the shortest duration of any rank, an upper bound on the wait." }
-- last_rank      = { type = "INTEGER", null = true, doc = "The rank that the wait of this row, of whichever kind, was for." }
-- late_ns        = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Start minus the start of the first rank, on aligned clocks (`clock_offsets`)." }
-- reason         = { type = "VARCHAR", null = true, doc = "Why late_ns is null: not matched; clock offset not known; clock uncertainty not known; under twice the clock uncertainty." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  collective,
  process_group,
  group_source,
  direction,
  peer,
  sequence,
  step,
  bytes,
  instance_id,
  state,
  members,
  start_ns,
  dur_ns,
  wait_ns,
  transfer_ns,
  straggler_rank,
  pair_wait_ns,
  possible_wait_ns,
  last_rank,
  CASE WHEN instance_id IS NOT NULL AND late_ns >= uncertainty_ns THEN late_ns END AS late_ns,
  CASE
    WHEN instance_id IS NULL THEN 'not matched'
    WHEN late_ns IS NULL THEN 'clock offset not known'
    WHEN uncertainty_ns IS NULL THEN 'clock uncertainty not known'
    WHEN late_ns < uncertainty_ns THEN 'under twice the clock uncertainty'
  END AS reason
FROM collective_arrivals
