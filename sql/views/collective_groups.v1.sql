-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "collective_groups"
-- version  = 1
-- summary  = "Process group of each collective: as reported, or by elimination among the groups that the headers list."
-- requires = ["collectives@1", "ranks@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- event_id     = { type = "BIGINT", unit = "id", doc = "The collective on this rank." }
-- group_key    = { type = "VARCHAR", null = true, doc = "Key of the process group, equal on all its ranks: its name, size and ranks as far as the trace reports them, else size and ranks of a group that the headers list. Null if all ranks are assumed or the group is unknown." }
-- group_ranks  = { type = "VARCHAR", null = true, doc = "Ranks of the group as a JSON list; null if the trace does not list all of them." }
-- group_size   = { type = "BIGINT", null = true, unit = "count", doc = "Number of ranks in the group, present or not; the world size if all ranks are assumed; null if unknown." }
-- group_source = { type = "VARCHAR", doc = "Evidence, the first that applies. reported: the arguments name the group or its ranks. size: the group size, or the ratio of output and input elements of an all_gather or reduce_scatter, fits one group of this rank in the headers, or the group size is the world size. elimination: only this group allows all its ranks to take part in every collective of this kind (operation, element type, size) at the same moment. all_ranks: the headers list one group or none. unknown: several groups are possible, or none." }
-- instances    = { type = "BIGINT", null = true, unit = "count", doc = "By elimination: the group's collectives of this kind, which are the evidence. The longer and the fewer they are, the weaker it is. Null for other sources." }
-- held         = { type = "BIGINT", null = true, unit = "count", doc = "Of these, collectives in which all ranks overlap, under one clock offset per rank." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  world AS (
    SELECT
      run_id,
      max(world_size)::BIGINT AS world_size,
      coalesce(max(json_array_length(process_groups)), 0) AS listed_groups
    FROM ranks
    GROUP BY run_id
  ),
  header AS (
    SELECT
      ranks.run_id,
      ranks.rank,
      unnest(json_transform(ranks.process_groups, '[{"pg_name": "VARCHAR", "pg_size": "BIGINT", "ranks": ["INTEGER"]}]')) AS entry
    FROM ranks
    JOIN world USING (run_id)
    WHERE world.listed_groups > 1
  ),
  listed AS (
    -- A list that is cut or empty is complete only if the group has all ranks.
    SELECT DISTINCT
      header.run_id,
      header.rank,
      header.entry.pg_name AS name,
      header.entry.pg_size AS size,
      CASE
        WHEN header.entry.pg_size = world.world_size THEN range(world.world_size)::INTEGER[]
        ELSE list_sort(header.entry.ranks)
      END AS members
    FROM header
    JOIN world USING (run_id)
    WHERE header.entry.pg_size >= 2
  ),
  claim AS (
    SELECT run_id, name, size, members, count(*) FILTER (list_contains(members, rank)) AS confirmed
    FROM listed
    GROUP BY run_id, name, size, members
    -- An aggregate, so that the long lists are compared after they are grouped.
    HAVING len(list_distinct(members)) = any_value(size)
  ),
  claimed_member AS (
    SELECT run_id, name, size, members, confirmed, unnest(members) AS rank
    FROM claim
  ),
  group_names AS (
    SELECT run_id, rank, name, count(DISTINCT members) AS meanings
    FROM listed
    GROUP BY run_id, rank, name
  ),
  headed AS (
    SELECT DISTINCT run_id, rank
    FROM listed
  ),
  candidate AS (
    -- Headers must not contradict each other: every member that has a header lists the group, and lists
    -- nothing else under its name. Equal groups under several names count once.
    SELECT DISTINCT claimed_member.run_id, claimed_member.size, claimed_member.members
    FROM claimed_member
    LEFT JOIN headed USING (run_id, rank)
    LEFT JOIN group_names USING (run_id, rank, name)
    GROUP BY claimed_member.run_id, claimed_member.name, claimed_member.size, claimed_member.members
    HAVING any_value(claimed_member.confirmed) = count(headed.rank) AND coalesce(max(group_names.meanings), 0) <= 1
  ),
  possible_group AS (
    SELECT
      run_id,
      size,
      members,
      list_text,
      -- A hash in place of a long list.
      concat('of ', size, ' ', CASE WHEN len(list_text) < len(md5(list_text)) THEN list_text ELSE md5(list_text) END) AS group_key
    FROM (
      SELECT run_id, size, members, concat('[', array_to_string(members, ','), ']') AS list_text
      FROM candidate
    ) AS listing
  ),
  possible_member AS (
    -- Only ranks that are in the run. The lowest of them is the reference for clock offsets.
    SELECT
      run_id,
      size,
      group_key,
      rank,
      count(*) OVER of_group AS present,
      min(rank) OVER of_group AS first_rank
    FROM (
      SELECT run_id, size, group_key, unnest(members) AS rank
      FROM possible_group
    ) AS member
    SEMI JOIN ranks USING (run_id, rank)
    WINDOW of_group AS (PARTITION BY run_id, group_key)
  ),
  sized AS (
    SELECT
      collectives.run_id,
      collectives.rank,
      collectives.event_id,
      -- The kind of collective: its signature without step and sequence number.
      regexp_replace(collectives.signature, ' (step -?\d+|#\d+)', '') AS kind,
      collectives.signature,
      collectives.occurrence,
      collectives.start_ns,
      collectives.end_ns,
      collectives.group_size AS reported_size,
      coalesce(
        collectives.group_size,
        CASE
          WHEN collectives.collective = 'all_gather' AND collectives.out_elements % nullif(collectives.in_elements, 0) = 0
            THEN collectives.out_elements // nullif(collectives.in_elements, 0)
          WHEN collectives.collective = 'reduce_scatter' AND collectives.in_elements % nullif(collectives.out_elements, 0) = 0
            THEN collectives.in_elements // nullif(collectives.out_elements, 0)
        END
      ) AS size
    FROM collectives
    WHERE collectives.process_group IS NULL AND collectives.group_ranks IS NULL
  ),
  choice AS (
    -- The groups of its rank; where some have the size of the collective, only these.
    SELECT
      sized.run_id,
      sized.rank,
      sized.event_id,
      sized.kind,
      sized.signature,
      sized.occurrence,
      sized.start_ns,
      sized.end_ns,
      possible_member.group_key,
      possible_member.size,
      possible_member.present,
      possible_member.first_rank,
      sized.size = possible_member.size AS fits,
      count(*) FILTER (sized.size = possible_member.size) OVER of_event AS fitting
    FROM sized
    JOIN possible_member USING (run_id, rank)
    WINDOW of_event AS (PARTITION BY sized.run_id, sized.rank, sized.event_id)
  ),
  by_size AS (
    SELECT run_id, rank, event_id, group_key, size
    FROM choice
    WHERE fits AND fitting = 1
  ),
  open_choice AS (
    SELECT run_id, rank, event_id, kind, signature, occurrence, start_ns, end_ns, group_key, size, present, first_rank
    FROM choice
    WHERE fitting <> 1 AND (fits OR fitting = 0)
  ),
  instance AS (
    SELECT
      run_id,
      group_key,
      kind,
      signature,
      occurrence,
      count(*) = any_value(present) AND count(DISTINCT rank) = any_value(present) AS has_all,
      any_value(start_ns) FILTER (rank = first_rank) AS first_start_ns,
      any_value(end_ns) FILTER (rank = first_rank) AS first_end_ns
    FROM open_choice
    GROUP BY run_id, group_key, kind, signature, occurrence
  ),
  met AS (
    SELECT
      open_choice.run_id,
      open_choice.group_key,
      open_choice.kind,
      open_choice.signature,
      open_choice.occurrence,
      open_choice.rank,
      instance.has_all,
      -- Both ranks are in the collective at some moment, which bounds their clock difference on both sides.
      open_choice.start_ns - instance.first_end_ns AS least_ns,
      open_choice.end_ns - instance.first_start_ns AS most_ns
    FROM open_choice
    JOIN instance USING (run_id, group_key, signature, occurrence)
  ),
  clock AS (
    -- The offset halfway between the bounds; it breaks one of them if no offset keeps both.
    SELECT run_id, group_key, kind, rank, (max(least_ns) + min(most_ns)) // 2 AS offset_ns
    FROM met
    WHERE has_all
    GROUP BY run_id, group_key, kind, rank
  ),
  tested AS (
    SELECT
      met.run_id,
      met.group_key,
      met.kind,
      bool_and(met.has_all AND clock.offset_ns BETWEEN met.least_ns AND met.most_ns) AS holds
    FROM met
    LEFT JOIN clock USING (run_id, rank, group_key, kind)
    GROUP BY met.run_id, met.group_key, met.kind, met.signature, met.occurrence
  ),
  evidence AS (
    SELECT run_id, group_key, kind, count(*) AS instances, count(*) FILTER (holds) AS held
    FROM tested
    GROUP BY run_id, group_key, kind
  ),
  option AS (
    SELECT DISTINCT
      open_choice.run_id,
      open_choice.rank,
      open_choice.kind,
      open_choice.group_key,
      open_choice.size,
      open_choice.present,
      evidence.instances = evidence.held AS holds,
      max(open_choice.size) OVER of_rank AS largest
    FROM open_choice
    JOIN evidence USING (run_id, group_key, kind)
    WINDOW of_rank AS (PARTITION BY open_choice.run_id, open_choice.rank, open_choice.kind)
  ),
  vote AS (
    -- The largest group if it was not refuted, else the only one that was not.
    SELECT
      run_id,
      rank,
      kind,
      CASE
        WHEN count(*) FILTER (holds AND size = largest) = 1 AND count(*) FILTER (size = largest) = 1
          THEN any_value(group_key) FILTER (holds AND size = largest)
        WHEN count(*) FILTER (holds) = 1 THEN any_value(group_key) FILTER (holds)
      END AS group_key
    FROM option
    GROUP BY run_id, rank, kind
  ),
  agreed AS (
    SELECT vote.run_id, vote.group_key, vote.kind
    FROM vote
    JOIN option USING (run_id, rank, kind, group_key)
    GROUP BY vote.run_id, vote.group_key, vote.kind
    HAVING count(*) = any_value(option.present)
  ),
  eliminated AS (
    SELECT open_choice.run_id, open_choice.rank, open_choice.event_id, open_choice.group_key, open_choice.size, evidence.instances, evidence.held
    FROM open_choice
    JOIN vote USING (run_id, rank, kind, group_key)
    JOIN agreed USING (run_id, kind, group_key)
    JOIN evidence USING (run_id, kind, group_key)
  ),
  found AS (
    SELECT
      sized.run_id,
      sized.rank,
      sized.event_id,
      coalesce(by_size.group_key, eliminated.group_key) AS group_key,
      coalesce(by_size.size, eliminated.size) AS size,
      CASE
        WHEN by_size.group_key IS NOT NULL THEN 'size'
        WHEN eliminated.group_key IS NOT NULL THEN 'elimination'
        WHEN sized.reported_size = world.world_size THEN 'size'
        WHEN sized.reported_size IS NULL AND world.listed_groups <= 1 THEN 'all_ranks'
        ELSE 'unknown'
      END AS group_source,
      eliminated.instances,
      eliminated.held
    FROM sized
    JOIN world USING (run_id)
    LEFT JOIN by_size USING (run_id, rank, event_id)
    LEFT JOIN eliminated USING (run_id, rank, event_id)
  )
SELECT
  collectives.run_id,
  collectives.rank,
  collectives.event_id,
  CASE WHEN found.group_source = 'unknown' THEN NULL ELSE coalesce(found.group_key, collectives.group_key) END AS group_key,
  CASE
    WHEN found.group_key IS NOT NULL THEN possible_group.list_text
    WHEN collectives.group_ranks NOT LIKE '%...%' THEN collectives.group_ranks
  END AS group_ranks,
  CASE
    WHEN found.group_source = 'unknown' THEN NULL
    ELSE coalesce(found.size, collectives.group_size, world.world_size)
  END AS group_size,
  coalesce(found.group_source, 'reported') AS group_source,
  found.instances,
  found.held
FROM collectives
JOIN world USING (run_id)
LEFT JOIN found USING (run_id, rank, event_id)
LEFT JOIN possible_group ON possible_group.run_id = found.run_id AND possible_group.group_key = found.group_key
