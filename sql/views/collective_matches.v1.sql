-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "collective_matches"
-- version  = 1
-- summary  = "Collectives per rank, matched with the same collectives on other ranks, or the reason why they are not matched."
-- requires = ["collectives@1", "ranks@1"]
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
-- group_told     = { type = "BOOLEAN", doc = "True if the trace names the process group or lists only one; false if all ranks are assumed to be members." }
-- group_size     = { type = "BIGINT", null = true, unit = "count", doc = "Number of ranks in the process group; the world size if unknown." }
-- bytes          = { type = "BIGINT", null = true, unit = "bytes", doc = "Larger of the input and output sizes on this rank." }
-- sequence       = { type = "BIGINT", null = true, unit = "id", doc = "Sequence number within the process group, as recorded in the trace." }
-- step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- start_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "Start on this rank's clock." }
-- end_ns         = { type = "BIGINT", signed = true, unit = "ts", doc = "End on this rank's clock." }
-- dur_ns         = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns." }
-- state          = { type = "VARCHAR", doc = "whole: all ranks of the group take part; partial: at least two; alone: only this rank; ambiguous: ranks have different numbers of such collectives in the same step, or a rank has two at the same position; apart: the group is unknown, and under no clock offsets do the ranks overlap in all collectives of this kind." }
-- members        = { type = "BIGINT", unit = "count", doc = "Ranks that take part; 1 unless the state is whole or partial." }
-- meeting        = { type = "VARCHAR", null = true, doc = "Key of the collective instance, equal on all its ranks: group, signature and position. Null, like all columns below, unless the state is whole or partial." }
-- first_rank     = { type = "INTEGER", null = true, doc = "Lowest participating rank." }
-- first_end_ns   = { type = "BIGINT", signed = true, unit = "ts", null = true, doc = "End of the collective on first_rank, on that rank's clock." }
-- shortest_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "Shortest duration of any rank." }
-- waited_for     = { type = "INTEGER", null = true, doc = "The rank with the shortest duration, which arrived last; the lowest rank on ties." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  world AS (
    SELECT
      run_id,
      max(world_size)::BIGINT AS world_size,
      -- If the header lists only one group, collectives without a group name belong to it.
      coalesce(max(json_array_length(process_groups)) = 1, FALSE) AS one_group
    FROM ranks
    GROUP BY run_id
  ),
  placed AS (
    SELECT
      collectives.run_id,
      collectives.rank,
      collectives.event_id,
      collectives.on_gpu,
      collectives.device,
      collectives.stream,
      collectives.collective,
      collectives.waits_for_all,
      collectives.process_group,
      collectives.group_key IS NOT NULL OR world.one_group AS group_told,
      coalesce(collectives.group_size, world.world_size) AS group_size,
      collectives.bytes,
      collectives.sequence,
      collectives.step,
      collectives.start_ns,
      collectives.end_ns,
      collectives.dur_ns,
      concat_ws(' | ', coalesce(collectives.group_key, 'all ranks'), collectives.signature) AS likeness,
      collectives.place,
      collectives.places
    FROM collectives
    JOIN world ON world.run_id = collectives.run_id
  ),
  stretch AS (
    SELECT run_id, likeness, min(places) < max(places) AS uneven
    FROM placed
    GROUP BY run_id, likeness
  ),
  meeting AS (
    SELECT
      run_id,
      likeness,
      place,
      bool_and(group_told) AS group_told,
      count(*) > count(DISTINCT rank) AS doubled,
      count(*) AS members,
      max(group_size) AS group_size,
      min(rank) AS first_rank,
      arg_min(start_ns, rank) AS first_start_ns,
      arg_min(end_ns, rank) AS first_end_ns,
      -- Kind of collective, used if its group is unknown.
      {name: any_value(collective), size: arg_min_null(bytes, rank)} AS kind,
      min(dur_ns) AS shortest_ns,
      arg_min(rank, (dur_ns, rank)) AS waited_for
    FROM placed
    GROUP BY run_id, likeness, place
  ),
  pair AS (
    -- Both ranks are in the collective at some moment, which bounds their clock difference on both sides.
    SELECT
      placed.run_id,
      meeting.kind,
      max(placed.start_ns - meeting.first_end_ns) > min(placed.end_ns - meeting.first_start_ns) AS apart
    FROM placed
    JOIN meeting
      ON meeting.run_id = placed.run_id AND meeting.likeness = placed.likeness AND meeting.place = placed.place
    JOIN stretch ON stretch.run_id = placed.run_id AND stretch.likeness = placed.likeness
    WHERE
      NOT placed.group_told AND NOT meeting.doubled AND NOT stretch.uneven AND placed.rank > meeting.first_rank
    GROUP BY placed.run_id, meeting.kind, meeting.first_rank, placed.rank
  ),
  refuted AS (
    SELECT DISTINCT run_id, kind
    FROM pair
    WHERE apart
  ),
  met AS (
    SELECT
      meeting.run_id,
      meeting.likeness,
      meeting.place,
      CASE
        WHEN meeting.doubled OR stretch.uneven THEN 'ambiguous'
        WHEN meeting.members = 1 THEN 'alone'
        WHEN refuted.kind IS NOT NULL AND NOT meeting.group_told THEN 'apart'
        WHEN meeting.members >= meeting.group_size THEN 'whole'
        ELSE 'partial'
      END AS state,
      state IN ('partial', 'whole') AS matched,
      meeting.group_told,
      meeting.group_size,
      meeting.members,
      meeting.first_rank,
      meeting.first_end_ns,
      meeting.shortest_ns,
      meeting.waited_for
    FROM meeting
    JOIN stretch ON stretch.run_id = meeting.run_id AND stretch.likeness = meeting.likeness
    LEFT JOIN refuted ON refuted.run_id = meeting.run_id AND refuted.kind = meeting.kind
  )
SELECT
  placed.run_id,
  placed.rank,
  placed.event_id,
  placed.on_gpu,
  placed.device,
  placed.stream,
  placed.collective,
  placed.waits_for_all,
  placed.process_group,
  met.group_told,
  met.group_size,
  placed.bytes,
  placed.sequence,
  placed.step,
  placed.start_ns,
  placed.end_ns,
  placed.dur_ns,
  met.state,
  CASE WHEN met.matched THEN met.members ELSE 1 END AS members,
  CASE WHEN met.matched THEN concat_ws(' | ', met.likeness, met.place) END AS meeting,
  CASE WHEN met.matched THEN met.first_rank END AS first_rank,
  CASE WHEN met.matched THEN met.first_end_ns END AS first_end_ns,
  CASE WHEN met.matched THEN met.shortest_ns END AS shortest_ns,
  CASE WHEN met.matched THEN met.waited_for END AS waited_for
FROM placed
JOIN met ON met.run_id = placed.run_id AND met.likeness = placed.likeness AND met.place = placed.place
