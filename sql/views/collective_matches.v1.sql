-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "collective_matches"
-- version  = 1
-- summary  = "Collectives per rank, matched with the same collectives on other ranks, or the reason why they are not matched."
-- requires = ["collectives@1", "collective_groups@1", "ranks@1"]
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
-- peer           = { type = "INTEGER", null = true, doc = "The other rank of a send or receive: that of its match, else of a group of two; null if unknown. Matching by sequence number is untested on real traces, which record none." }
-- bytes          = { type = "BIGINT", null = true, unit = "bytes", doc = "Larger of the input and output sizes on this rank." }
-- sequence       = { type = "BIGINT", null = true, unit = "id", doc = "Sequence number within the process group, as recorded in the trace. Untested on real data: the traces at hand record none." }
-- step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- start_ns       = { type = "BIGINT", signed = true, unit = "ts", doc = "Start on this rank's clock." }
-- end_ns         = { type = "BIGINT", signed = true, unit = "ts", doc = "End on this rank's clock." }
-- dur_ns         = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns." }
-- state          = { type = "VARCHAR", doc = "complete: all ranks of the group take part (both ends of a send and receive); partial: at least two. Not matched: unmatched: only this rank; ambiguous: ranks have different numbers of such collectives in the same step, a rank has two at the same position, or more ranks take part than the group has; inconsistent_clocks: the group is unknown, and under no clock offsets do the ranks overlap in all collectives of this kind; coalesced: several sends and receives in one activity, whose peers are unknown; unknown_group: several process groups are possible." }
-- members        = { type = "BIGINT", unit = "count", doc = "Ranks that take part; 1 unless the state is complete or partial." }
-- instance_id    = { type = "VARCHAR", null = true, doc = "Key of the collective instance, equal on all its ranks: group, signature and position; for a send and its receive the sequence number, or the ranks in order and the position among those of this direction. Null, like all columns below, unless the state is complete or partial." }
-- first_rank     = { type = "INTEGER", null = true, doc = "Lowest participating rank." }
-- first_end_ns   = { type = "BIGINT", signed = true, unit = "ts", null = true, doc = "End of the collective on first_rank, on that rank's clock." }
-- shortest_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "Shortest duration of any rank." }
-- straggler_rank = { type = "INTEGER", null = true, doc = "The rank with the shortest duration, which arrived last; the lowest rank on ties." }
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
  ends AS (
    -- The two ranks of a group, by which a send without a sequence number finds its receive.
    SELECT
      groups.run_id,
      coalesce(groups.group_key, 'all ranks') AS group_key,
      min(groups.rank) AS low_rank,
      max(groups.rank) AS high_rank
    FROM collective_groups AS groups
    WHERE groups.group_source <> 'unknown'
    GROUP BY groups.run_id, coalesce(groups.group_key, 'all ranks')
    HAVING count(DISTINCT groups.rank) = 2
  ),
  keyed AS (
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
      groups.group_source IN ('reported', 'size', 'elimination') OR world.one_group AS group_known,
      groups.group_source,
      groups.group_key,
      groups.group_ranks,
      groups.group_size,
      CASE collectives.collective WHEN 'send' THEN 'send' WHEN 'recv' THEN 'receive' END AS direction,
      CASE WHEN direction IS NOT NULL THEN ends.low_rank + ends.high_rank - collectives.rank END AS peer,
      collectives.bytes,
      collectives.sequence,
      collectives.step,
      collectives.start_ns,
      collectives.end_ns,
      collectives.dur_ns,
      CASE
        WHEN collectives.collective = 'send_recv' THEN 'coalesced'
        WHEN groups.group_source = 'unknown' THEN 'unknown_group'
        WHEN direction IS NOT NULL AND collectives.sequence IS NULL AND peer IS NULL THEN 'unmatched'
      END AS unmatched_state,
      concat_ws(
        ' | ',
        coalesce(groups.group_key, 'all ranks'),
        CASE
          WHEN unmatched_state IS NOT NULL THEN concat(collectives.signature, ' of rank ', collectives.rank)
          WHEN direction IS NULL THEN collectives.signature
          WHEN collectives.sequence IS NOT NULL THEN concat('send and receive #', collectives.sequence)
          ELSE
            concat(
              'send ',
              CASE WHEN direction = 'send' THEN collectives.rank ELSE peer END,
              ' to ',
              CASE WHEN direction = 'send' THEN peer ELSE collectives.rank END,
              regexp_replace(collectives.signature, '^\w+', '')
            )
        END
      ) AS match_key,
      collectives.occurrence,
      collectives.occurrences
    FROM collectives
    JOIN world USING (run_id)
    JOIN collective_groups AS groups USING (run_id, rank, event_id)
    LEFT JOIN ends ON ends.run_id = groups.run_id AND ends.group_key = coalesce(groups.group_key, 'all ranks')
  ),
  counted AS (
    SELECT run_id, match_key, min(occurrences) < max(occurrences) AS uneven
    FROM keyed
    GROUP BY run_id, match_key
  ),
  instance AS (
    SELECT
      run_id,
      match_key,
      occurrence,
      bool_and(group_known) AS group_known,
      any_value(unmatched_state) AS unmatched_state,
      -- Of a send and receive both ends, however large their group is.
      CASE WHEN count(direction) > 0 THEN 2 ELSE max(group_size) END AS ranks_needed,
      count(*) > count(DISTINCT rank)
        -- Two sends, or two receives.
        OR count(*) > 1 AND count(direction) > 0 AND count(DISTINCT direction) = 1
        OR coalesce(count(*) > ranks_needed, FALSE) AS doubled,
      count(*) AS members,
      CASE WHEN count(*) = 2 AND count(direction) = 2 THEN min(rank) + max(rank) END AS both_ranks,
      min(rank) AS first_rank,
      arg_min(start_ns, rank) AS first_start_ns,
      arg_min(end_ns, rank) AS first_end_ns,
      -- Kind of collective, used if its group is unknown.
      {name: min(collective), size: arg_min_null(bytes, rank)} AS kind,
      min(dur_ns) AS shortest_ns,
      arg_min(rank, (dur_ns, rank)) AS straggler_rank
    FROM keyed
    GROUP BY run_id, match_key, occurrence
  ),
  pair AS (
    -- Both ranks are in the collective at some moment, which bounds their clock difference on both sides.
    SELECT
      keyed.run_id,
      instance.kind,
      max(keyed.start_ns - instance.first_end_ns) > min(keyed.end_ns - instance.first_start_ns) AS inconsistent
    FROM keyed
    JOIN instance USING (run_id, match_key, occurrence)
    JOIN counted USING (run_id, match_key)
    WHERE
      NOT keyed.group_known AND NOT instance.doubled AND NOT counted.uneven AND keyed.rank > instance.first_rank
    GROUP BY keyed.run_id, instance.kind, instance.first_rank, keyed.rank
  ),
  refuted AS (
    SELECT DISTINCT run_id, kind
    FROM pair
    WHERE inconsistent
  ),
  matches AS (
    SELECT
      instance.run_id,
      instance.match_key,
      instance.occurrence,
      CASE
        WHEN instance.unmatched_state IS NOT NULL THEN instance.unmatched_state
        WHEN instance.doubled OR counted.uneven THEN 'ambiguous'
        WHEN instance.members = 1 THEN 'unmatched'
        WHEN refuted.kind IS NOT NULL AND NOT instance.group_known THEN 'inconsistent_clocks'
        WHEN instance.members >= instance.ranks_needed THEN 'complete'
        ELSE 'partial'
      END AS state,
      state IN ('partial', 'complete') AS matched,
      instance.group_known,
      instance.both_ranks,
      instance.members,
      instance.first_rank,
      instance.first_end_ns,
      instance.shortest_ns,
      instance.straggler_rank
    FROM instance
    JOIN counted USING (run_id, match_key)
    LEFT JOIN refuted USING (run_id, kind)
  )
SELECT
  keyed.run_id,
  keyed.rank,
  keyed.event_id,
  keyed.on_gpu,
  keyed.device,
  keyed.stream,
  keyed.collective,
  keyed.waits_for_all,
  keyed.process_group,
  matches.group_known,
  keyed.group_source,
  keyed.group_key,
  keyed.group_ranks,
  keyed.group_size,
  keyed.direction,
  CASE WHEN matches.matched THEN coalesce(matches.both_ranks - keyed.rank, keyed.peer) ELSE keyed.peer END AS peer,
  keyed.bytes,
  keyed.sequence,
  keyed.step,
  keyed.start_ns,
  keyed.end_ns,
  keyed.dur_ns,
  matches.state,
  CASE WHEN matches.matched THEN matches.members ELSE 1 END AS members,
  CASE WHEN matches.matched THEN concat_ws(' | ', matches.match_key, matches.occurrence) END AS instance_id,
  CASE WHEN matches.matched THEN matches.first_rank END AS first_rank,
  CASE WHEN matches.matched THEN matches.first_end_ns END AS first_end_ns,
  CASE WHEN matches.matched THEN matches.shortest_ns END AS shortest_ns,
  CASE WHEN matches.matched THEN matches.straggler_rank END AS straggler_rank
FROM keyed
JOIN matches USING (run_id, match_key, occurrence)
