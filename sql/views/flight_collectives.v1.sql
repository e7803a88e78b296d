-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "flight_collectives"
-- version  = 1
-- summary  = "Collectives in flight recorder dumps: one row per process group, number and rank that could have a record of it."
-- requires = ["flight_calls@1"]
-- grain    = ["run_id", "process_group", "collective_seq", "rank"]
-- order    = ["run_id", "process_group", "collective_seq", "rank"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- process_group  = { type = "VARCHAR", doc = "Name of the process group." }
-- group_desc     = { type = "VARCHAR", null = true, doc = "Description of the process group." }
-- collective_seq = { type = "BIGINT", unit = "id", doc = "Number of the collective in its process group." }
-- rank           = { type = "INTEGER", doc = "A rank of the group: one with a record of any of its collectives, or one that the dumps list." }
-- is_recorded    = { type = "BOOLEAN", doc = "True if the rank has a record of this collective. Collectives older than the oldest record of the rank in the group are left out: the recorder keeps the last ones only." }
-- has_dump       = { type = "BOOLEAN", doc = "True if a dump of the rank was ingested." }
-- collective     = { type = "VARCHAR", null = true, doc = "all_reduce, all_gather, …, without the backend; null without a record." }
-- state          = { type = "VARCHAR", null = true, doc = "scheduled, started or completed; null without a record." }
-- created_ns     = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "When it was called, UTC." }
-- sizes          = { type = "VARCHAR", null = true, doc = "Shapes of inputs and outputs; null without a record." }
-- dtypes         = { type = "VARCHAR", null = true, doc = "Element types of inputs and outputs; null without a record." }
-- caller         = { type = "VARCHAR", null = true, doc = "Innermost frame outside of PyTorch." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  -- Operations of a coalesced group share a number; the first one counts.
  first AS (
    SELECT run_id, rank, process_group, collective_seq, min(record_id) AS record_id
    FROM flight_calls
    WHERE collective_seq IS NOT NULL
    GROUP BY run_id, rank, process_group, collective_seq
  ),
  entry AS (
    SELECT
      calls.run_id,
      calls.rank,
      calls.process_group,
      calls.collective_seq,
      calls.group_desc,
      calls.collective,
      calls.state,
      calls.created_ns,
      calls.sizes,
      calls.dtypes,
      calls.caller
    FROM flight_calls AS calls
    JOIN first USING (run_id, rank, record_id)
  ),
  dump AS (
    SELECT DISTINCT run_id, rank
    FROM flight_calls
  ),
  oldest AS (
    SELECT run_id, rank, process_group, min(collective_seq) AS collective_seq
    FROM entry
    GROUP BY run_id, rank, process_group
  ),
  member AS (
    SELECT run_id, process_group, rank
    FROM oldest
    UNION
    SELECT DISTINCT run_id, process_group, unnest(group_ranks) AS rank
    FROM flight_calls
  ),
  key AS (
    SELECT run_id, process_group, collective_seq, min(group_desc) AS group_desc
    FROM entry
    GROUP BY run_id, process_group, collective_seq
  )
SELECT
  key.run_id,
  key.process_group,
  key.group_desc,
  key.collective_seq,
  member.rank,
  entry.rank IS NOT NULL AS is_recorded,
  dump.rank IS NOT NULL AS has_dump,
  entry.collective,
  entry.state,
  entry.created_ns,
  entry.sizes,
  entry.dtypes,
  entry.caller
FROM key
JOIN member USING (run_id, process_group)
LEFT JOIN oldest USING (run_id, rank, process_group)
LEFT JOIN dump USING (run_id, rank)
LEFT JOIN entry
  ON entry.run_id = key.run_id
  AND entry.process_group = key.process_group
  AND entry.collective_seq = key.collective_seq
  AND entry.rank = member.rank
WHERE coalesce(oldest.collective_seq, 0) <= key.collective_seq
