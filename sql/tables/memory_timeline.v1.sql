-- /// tw
-- kind     = "table"
-- name     = "memory_timeline"
-- version  = 1
-- summary  = "A change of memory with what it was used for, as torch's export_memory_timeline writes into a .raw.json.gz file."
-- requires = ["events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- event_id      = { type = "BIGINT", unit = "id", doc = "Position in the file. A file that holds any trace event has no rows here." }
-- ts_ns         = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When; null for what was there before (the file says a time below 0)." }
-- action        = { type = "VARCHAR", null = true, doc = "preexisting, create, increment_version (what a tensor holds is overwritten: its bytes leave one category and come into one, as two rows), destroy; null for a number that torch does not use." }
-- bytes         = { type = "BIGINT", null = true, signed = true, unit = "bytes", doc = "Bytes that come; negative: that go. Null for an element that is no change of memory." }
-- category      = { type = "VARCHAR", null = true, doc = "parameter, optimizer_state, input, temporary, activation, gradient, autograd_detail, unknown (torch could not tell); null for a number that torch does not use." }
-- file_time_ns  = { type = "BIGINT", null = true, signed = true, unit = "ns", doc = "The file's time where ts_ns is null." }
-- file_action   = { type = "BIGINT", null = true, unit = "id", doc = "The file's number where action is null." }
-- file_category = { type = "BIGINT", null = true, unit = "id", doc = "The file's number where category is null." }
-- element       = { type = "VARCHAR", null = true, doc = "The element as in the file where it is not four whole numbers." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  element AS (
    SELECT run_id, rank, event_id, TRY_CAST(extra AS BIGINT[]) AS part
    FROM events
    WHERE
      ph IS NULL
      AND regexp_full_match(extra::VARCHAR, '\[-?[0-9]+,[0-9]+,-?[0-9]+,[0-9]+\]')
      AND NOT EXISTS (SELECT 1 FROM events AS event WHERE event.ph IS NOT NULL)
  )
SELECT
  run_id,
  rank,
  event_id,
  CASE WHEN part[1] >= 0 THEN part[1] END AS ts_ns,
  ['preexisting', 'create', 'increment_version', 'destroy'][part[2]] AS action,
  part[3] AS bytes,
  ['parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'autograd_detail', 'unknown'][
    part[4] + 1
  ] AS category,
  CASE WHEN part[1] < 0 THEN part[1] END AS file_time_ns,
  CASE WHEN part[2] NOT BETWEEN 1 AND 4 THEN part[2] END AS file_action,
  CASE WHEN part[4] NOT BETWEEN 0 AND 7 THEN part[4] END AS file_category,
  NULL::VARCHAR AS element
FROM element
WHERE part IS NOT NULL
