-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "flight_mismatches"
-- version  = 1
-- summary  = "Collectives that the ranks of a process group did not all call, or called differently, from flight recorder dumps."
-- requires = ["flight_collectives@1"]
-- needs    = ["flight_records"]
-- grain    = ["run_id", "process_group", "collective_seq", "mismatch"]
-- order    = ["run_id", "process_group", "collective_seq", "mismatch"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- process_group  = { type = "VARCHAR", doc = "Name of the process group." }
-- group_desc     = { type = "VARCHAR", null = true, doc = "Description of the process group." }
-- collective_seq = { type = "BIGINT", unit = "id", doc = "Number of the collective in its process group." }
-- mismatch       = { type = "VARCHAR", doc = "missing: a rank has no record of it; type: ranks called different collectives; size, dtype: with different shapes or element types; state: it got further on some ranks." }
-- collective     = { type = "VARCHAR", null = true, doc = "all_reduce, all_gather, …, on most ranks." }
-- ranks          = { type = "INTEGER[]", doc = "The ranks that differ from most ranks (of a tie, from the lowest rank)." }
-- most           = { type = "VARCHAR", null = true, doc = "What most ranks have; null for missing." }
-- other          = { type = "VARCHAR", null = true, doc = "What the first rank that differs has; null for missing." }
-- recorded       = { type = "BIGINT", unit = "count", doc = "Number of ranks with a record of it." }
-- members        = { type = "BIGINT", unit = "count", doc = "Number of ranks with a dump that could have one." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  side AS (
    SELECT
      run_id,
      process_group,
      group_desc,
      collective_seq,
      rank,
      collective,
      is_recorded,
      unnest(['missing', 'type', 'size', 'dtype', 'state']) AS mismatch,
      unnest([
        CASE WHEN is_recorded THEN 'yes' END,
        collective,
        -- Their shapes may differ between ranks.
        CASE WHEN NOT regexp_matches(coalesce(collective, ''), 'all_?to_?all|^_?(gather|scatter)') THEN sizes END,
        dtypes,
        state
      ]) AS value
    FROM flight_collectives
    WHERE has_dump
  ),
  counted AS (
    SELECT
      run_id,
      process_group,
      group_desc,
      collective_seq,
      mismatch,
      value,
      count(*) AS count,
      list(rank ORDER BY rank) AS ranks,
      min(collective) AS collective,
      row_number() OVER (
        PARTITION BY run_id, process_group, collective_seq, mismatch
        ORDER BY mismatch = 'missing' AND value IS NULL, count(*) DESC, min(rank)
      ) AS position
    FROM side
    WHERE mismatch = 'missing' OR (is_recorded AND value IS NOT NULL)
    GROUP BY run_id, process_group, group_desc, collective_seq, mismatch, value
  )
SELECT
  run_id,
  process_group,
  min(group_desc) AS group_desc,
  collective_seq,
  mismatch,
  arg_min(collective, position) AS collective,
  list_sort(flatten(list(ranks ORDER BY position) FILTER (position > 1))) AS ranks,
  CASE WHEN mismatch <> 'missing' THEN arg_min(value, position) END AS most,
  CASE WHEN mismatch <> 'missing' THEN arg_min(value, position) FILTER (position > 1) END AS other,
  coalesce(sum(count) FILTER (mismatch <> 'missing' OR value IS NOT NULL), 0)::BIGINT AS recorded,
  sum(count)::BIGINT AS members
FROM counted
GROUP BY run_id, process_group, collective_seq, mismatch
HAVING max(position) > 1
