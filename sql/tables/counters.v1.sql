-- /// tw
-- kind     = "table"
-- name     = "counters"
-- version  = 1
-- summary  = "A value of a counter at a time."
-- requires = ["events@1"]
-- grain    = ["run_id", "rank", "event_id", "series"]
-- order    = ["run_id", "rank", "name", "series", "ts_ns"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The row." }
-- name     = { type = "VARCHAR", null = true, doc = "The counter." }
-- series   = { type = "VARCHAR", doc = "The value's key: a counter may have several." }
-- pid      = { type = "VARCHAR", null = true, doc = "The process, or device." }
-- tid      = { type = "VARCHAR", null = true, doc = "The thread." }
-- ts_ns    = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When." }
-- value    = { type = "DOUBLE", null = true, doc = "The value; null where it is no number. `events` has it digit by digit." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  counter AS (
    SELECT run_id, rank, event_id, name, pid, tid, ts_ns, unnest(json_keys(args)) AS series, args
    FROM events
    WHERE ph = 'C' AND json_type(args) = 'OBJECT'
  )
SELECT DISTINCT
  run_id,
  rank,
  event_id,
  name,
  series,
  pid,
  tid,
  ts_ns,
  TRY_CAST(json_extract_string(args, '/' || replace(replace(series, '~', '~0'), '/', '~1')) AS DOUBLE) AS value
FROM counter
