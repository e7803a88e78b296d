-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "stuck_groups"
-- version  = 1
-- summary  = "Process groups that are stuck at a collective, and the ranks that did not arrive, from flight recorder dumps."
-- requires = ["flight_calls@1", "flight_collectives@1"]
-- grain    = ["run_id", "process_group"]
-- order    = ["run_id", "waiting_since_ns", "process_group"]
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run." }
-- process_group    = { type = "VARCHAR", doc = "Name of the process group. A group whose ranks all called the same collectives, and completed them as far as recorded, has no row." }
-- group_desc       = { type = "VARCHAR", null = true, doc = "Description of the process group." }
-- collective_seq   = { type = "BIGINT", unit = "id", doc = "Number of the stuck collective in its process group." }
-- collective       = { type = "VARCHAR", null = true, doc = "all_reduce, all_gather, …, on most ranks that called it." }
-- cause            = { type = "VARCHAR", doc = "missing: ranks did not call it; type: ranks called different collectives; not_completed: all ranks called it, but it did not complete." }
-- missing_ranks    = { type = "INTEGER[]", doc = "Ranks that did not arrive; for type the ranks that called another collective; empty for not_completed." }
-- waiting_ranks    = { type = "INTEGER[]", doc = "Ranks that called it and did not complete it, as far as recorded." }
-- without_dump     = { type = "INTEGER[]", doc = "Ranks of the group without a dump: they may be the ones that did not arrive." }
-- waiting_since_ns = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "When the first rank called it, UTC. The group with the earliest time got stuck first." }
-- last_call        = { type = "VARCHAR", null = true, doc = "The last collective that the first missing rank called, in any group." }
-- explanation      = { type = "VARCHAR", doc = "Which collective is stuck and which rank did not arrive, in one sentence." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  progress AS (
    SELECT run_id, process_group, rank, coalesce(max(collective_seq) FILTER (is_recorded), 0) AS last_seq
    FROM flight_collectives
    WHERE has_dump
    GROUP BY run_id, process_group, rank
  ),
  behind AS (
    SELECT
      run_id,
      process_group,
      CASE WHEN min(last_seq) < max(last_seq) THEN min(last_seq) + 1 END AS collective_seq
    FROM progress
    GROUP BY run_id, process_group
  ),
  most AS (
    SELECT run_id, process_group, collective_seq, mode(collective ORDER BY rank) AS collective, count(DISTINCT collective) AS kinds
    FROM flight_collectives
    WHERE is_recorded
    GROUP BY run_id, process_group, collective_seq
  ),
  differs AS (
    SELECT run_id, process_group, min(collective_seq) AS collective_seq
    FROM most
    WHERE kinds > 1
    GROUP BY run_id, process_group
  ),
  -- Only where the backend reports progress: gloo never goes beyond scheduled.
  unfinished AS (
    SELECT
      run_id,
      process_group,
      min(collective_seq) FILTER (is_recorded AND state <> 'completed') AS collective_seq
    FROM flight_collectives
    GROUP BY run_id, process_group
    HAVING bool_or(state IN ('completed', 'started'))
  ),
  stuck AS (
    SELECT
      behind.run_id,
      behind.process_group,
      coalesce(least(differs.collective_seq, behind.collective_seq), unfinished.collective_seq) AS collective_seq,
      CASE
        WHEN differs.collective_seq <= coalesce(behind.collective_seq, differs.collective_seq) THEN 'type'
        WHEN behind.collective_seq IS NOT NULL THEN 'missing'
        ELSE 'not_completed'
      END AS cause
    FROM behind
    LEFT JOIN differs USING (run_id, process_group)
    LEFT JOIN unfinished USING (run_id, process_group)
  ),
  found AS (
    SELECT
      stuck.run_id,
      stuck.process_group,
      min(call.group_desc) AS group_desc,
      stuck.collective_seq,
      most.collective,
      stuck.cause,
      coalesce(
        list(call.rank ORDER BY call.rank) FILTER (
          call.has_dump
          AND CASE stuck.cause
            WHEN 'missing' THEN NOT call.is_recorded
            WHEN 'type' THEN call.is_recorded AND call.collective <> most.collective
            ELSE FALSE
          END
        ),
        []
      ) AS missing_ranks,
      coalesce(
        list(call.rank ORDER BY call.rank) FILTER (
          call.is_recorded
          AND call.state IS DISTINCT FROM 'completed'
          AND (stuck.cause <> 'type' OR call.collective = most.collective)
        ),
        []
      ) AS waiting_ranks,
      coalesce(list(call.rank ORDER BY call.rank) FILTER (NOT call.has_dump), []) AS without_dump,
      min(call.created_ns) AS waiting_since_ns
    FROM stuck
    JOIN most USING (run_id, process_group, collective_seq)
    JOIN flight_collectives AS call USING (run_id, process_group, collective_seq)
    GROUP BY stuck.run_id, stuck.process_group, stuck.collective_seq, most.collective, stuck.cause
  ),
  last_call AS (
    SELECT run_id, rank, arg_max(call, (created_ns, record_id)) AS text
    FROM flight_calls
    GROUP BY run_id, rank
  ),
  worded AS (
    SELECT
      found.run_id,
      found.process_group,
      found.group_desc,
      found.collective_seq,
      found.collective,
      found.cause,
      found.missing_ranks,
      found.waiting_ranks,
      found.without_dump,
      found.waiting_since_ns,
      last_call.text AS last_call,
      coalesce(found.collective, 'the operation')
      || ' #'
      || found.collective_seq
      || ' of group '
      || coalesce(nullif(found.process_group, ''), 'unnamed')
      || coalesce(' (' || found.group_desc || ')', '') AS what,
      [
        CASE len(ranks)
          WHEN 0 THEN ''
          WHEN 1 THEN 'rank ' || ranks[1]
          ELSE 'ranks ' || array_to_string(ranks[1:4], ', ') || CASE WHEN ranks[5] IS NULL THEN '' ELSE ', … (' || len(ranks) || ' in total)' END
        END
        FOR ranks IN [found.missing_ranks, found.waiting_ranks, found.without_dump]
      ] AS named
    FROM found
    LEFT JOIN last_call ON last_call.run_id = found.run_id AND last_call.rank = found.missing_ranks[1]
  )
SELECT
  run_id,
  process_group,
  group_desc,
  collective_seq,
  collective,
  cause,
  missing_ranks,
  waiting_ranks,
  without_dump,
  waiting_since_ns,
  last_call,
  CASE cause
    WHEN 'missing'
      THEN upper(named[1][1])
        || named[1][2:]
        || ' did not arrive at '
        || what
        || CASE WHEN named[2] = '' THEN '' ELSE ', where ' || named[2] || CASE WHEN waiting_ranks[2] IS NULL THEN ' waits' ELSE ' wait' END END
        || coalesce('; the last collective of rank ' || missing_ranks[1] || ' is ' || last_call, '')
    WHEN 'type'
      THEN upper(named[1][1])
        || named[1][2:]
        || ' called another collective where '
        || CASE WHEN named[2] = '' THEN 'the others' ELSE named[2] END
        || ' called '
        || what
        || coalesce('; the last collective of rank ' || missing_ranks[1] || ' is ' || last_call, '')
    ELSE 'All ranks with a dump called ' || what || ', but it did not complete on ' || named[2]
  END
  || CASE WHEN named[3] = '' THEN '.' ELSE '; no dump of ' || named[3] || ' was ingested.' END AS explanation
FROM worded
