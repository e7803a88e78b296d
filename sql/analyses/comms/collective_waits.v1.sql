-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "collective_waits"
-- version  = 1
-- summary  = "How long each rank waited at each collective for the last rank, how long the transfer took, and how late it came."
-- requires = ["collective_arrivals@1"]
-- needs    = ["collectives", "ranks>=2"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "-wait_ns"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- event_id      = { type = "BIGINT", unit = "id", doc = "The collective on this rank: a GPU row, or on the host (gloo, MPI) the backend's annotation." }
-- collective    = { type = "VARCHAR", doc = "all_reduce, all_gather, …; other where no name tells." }
-- process_group = { type = "VARCHAR", null = true, doc = "Name of the process group; null where the trace does not say, and all ranks are taken for it." }
-- sequence      = { type = "BIGINT", null = true, unit = "id", doc = "Number of the collective in its process group, as the trace gives it." }
-- step          = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- bytes         = { type = "BIGINT", null = true, unit = "bytes", doc = "The larger of what this rank gives and gets." }
-- meeting       = { type = "VARCHAR", null = true, doc = "What names the collective on all its ranks: group, collective with its number or step and size, place among its like; null where it is not matched." }
-- state         = { type = "VARCHAR", doc = "whole: all ranks of the group are there; partial: two or more. Not matched: alone; ambiguous (ranks show different numbers of such collectives in the same step, or a rank shows two at one place); apart (not all ranks are there at one moment)." }
-- members       = { type = "BIGINT", unit = "count", doc = "Ranks that take part; 1 where it is not matched." }
-- dur_ns        = { type = "BIGINT", unit = "ns", better = "lower", doc = "How long this rank was there." }
-- wait_ns       = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "What it was there longer than the rank that was there shortest: no clocks are compared. Null where it is not matched, and where a rank may leave before the last one came (broadcast, send, receive, …)." }
-- transfer_ns   = { type = "BIGINT", unit = "ns", better = "lower", null = true, doc = "The shortest length on any rank; wait_ns and transfer_ns make dur_ns. Where the state is partial, the transfer took at most this." }
-- waited_for    = { type = "INTEGER", null = true, doc = "The rank that was there shortest, so came last; the lowest of equal ones." }
-- late_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Start after that of the first rank, on aligned clocks (`clock_offsets`)." }
-- reason        = { type = "VARCHAR", null = true, doc = "Why late_ns is null: not matched; clock offset not known; clock uncertainty not known; under twice the clock uncertainty." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  told AS (
    SELECT
      run_id,
      rank,
      event_id,
      collective,
      process_group,
      sequence,
      step,
      bytes,
      meeting,
      state,
      members,
      dur_ns,
      wait_ns,
      transfer_ns,
      waited_for,
      late_ns,
      CASE
        WHEN meeting IS NULL THEN 'not matched'
        WHEN late_ns IS NULL THEN 'clock offset not known'
        WHEN doubt_ns IS NULL THEN 'clock uncertainty not known'
        WHEN late_ns < doubt_ns THEN 'under twice the clock uncertainty'
      END AS reason
    FROM collective_arrivals
  )
SELECT
  run_id,
  rank,
  event_id,
  collective,
  process_group,
  sequence,
  step,
  bytes,
  meeting,
  state,
  members,
  dur_ns,
  wait_ns,
  transfer_ns,
  waited_for,
  CASE WHEN reason IS NULL THEN late_ns END AS late_ns,
  reason
FROM told
