-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "collective_matches"
-- version  = 1
-- summary  = "Each rank's collectives with what the other ranks show of the same ones, or why these cannot be told."
-- requires = ["collectives@1", "ranks@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- event_id       = { type = "BIGINT", unit = "id", doc = "The collective on this rank." }
-- on_gpu         = { type = "BOOLEAN", doc = "It ran on the GPU." }
-- device         = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; null on the host." }
-- stream         = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream; null on the host." }
-- collective     = { type = "VARCHAR", doc = "all_reduce, all_gather, …." }
-- waits_for_all  = { type = "BOOLEAN", doc = "No rank can leave it before the last one came." }
-- process_group  = { type = "VARCHAR", null = true, doc = "Name of the process group; null where the trace does not say." }
-- group_told     = { type = "BOOLEAN", doc = "The trace says which process group it is, or knows but one; else all ranks are taken for it." }
-- group_size     = { type = "BIGINT", null = true, unit = "count", doc = "Ranks in the process group; where it is not told, the world size." }
-- bytes          = { type = "BIGINT", null = true, unit = "bytes", doc = "The larger of what this rank gives and gets." }
-- sequence       = { type = "BIGINT", null = true, unit = "id", doc = "Number of the collective in its process group, as the trace gives it." }
-- step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- start_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "When this rank was there, by its own clock." }
-- end_ns         = { type = "BIGINT", signed = true, unit = "ts", doc = "When it was done, by its own clock." }
-- dur_ns         = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns." }
-- state          = { type = "VARCHAR", doc = "whole: all ranks of the group are there; partial: two or more; alone; ambiguous: ranks show different numbers of such collectives in the same step, or a rank shows two at one place; apart: no group is told, and no clocks make all ranks that show this kind be there together." }
-- members        = { type = "BIGINT", unit = "count", doc = "Ranks that take part; 1 where the state is neither whole nor partial." }
-- meeting        = { type = "VARCHAR", null = true, doc = "What names the collective on all its ranks: group, signature and place. Null where the state is neither whole nor partial, and so below." }
-- first_rank     = { type = "INTEGER", null = true, doc = "The lowest rank that takes part." }
-- first_end_ns   = { type = "BIGINT", signed = true, unit = "ts", null = true, doc = "When the lowest rank was done, by its clock." }
-- shortest_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "The shortest length on any rank." }
-- waited_for     = { type = "INTEGER", null = true, doc = "The rank with the shortest length: it came last. The lowest of equal ones." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  world AS (
    SELECT
      run_id,
      max(world_size)::BIGINT AS world_size,
      -- Where the header lists one group, collectives that name none are of that one.
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
      -- What kind of collective it is, should its group not be told.
      {name: any_value(collective), size: arg_min_null(bytes, rank)} AS kind,
      min(dur_ns) AS shortest_ns,
      arg_min(rank, (dur_ns, rank)) AS waited_for
    FROM placed
    GROUP BY run_id, likeness, place
  ),
  pair AS (
    -- Both are there at some moment, so the one's clock is ahead of the other's by no less than this, and no more than that.
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
