-- /// tw
-- kind      = "table"
-- name      = "file_quality"
-- version   = 1
-- summary   = "What the reader had to say of a file, as rows of `data_quality`."
-- requires  = ["losses@1", "redactions@1", "raw@1"]
-- grain     = ["run_id", "rank", "rule"]
-- order     = ["run_id", "rank", "rule"]
-- transient = true
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- rule        = { type = "VARCHAR", doc = "The rule's name." }
-- rows        = { type = "BIGINT", unit = "count", doc = "Events lost (1 where the number is not known), places, events or values." }
-- ns_affected = { type = "BIGINT", null = true, unit = "ns", doc = "Null: such rows have no time." }
-- example     = { type = "VARCHAR", null = true, doc = "One of them; of redacted values each one." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  found AS (
    SELECT
      run_id,
      rank,
      CASE
        WHEN byte_to = byte_from THEN 'mended_file'
        WHEN events_lost = 0 THEN 'skipped_bytes'
        ELSE 'lost_events'
      END AS rule,
      coalesce(nullif(events_lost, 0), 1) AS rows,
      byte_from AS place,
      'bytes ' || byte_from || ' to ' || byte_to || ': ' || reason AS example
    FROM losses
    UNION ALL
    SELECT run_id, rank, 'redacted_value', 1, coalesce(event_id, -1), coalesce('#' || event_id, 'header') || ' ' || path
    FROM redactions
    UNION ALL
    SELECT run_id, rank, 'repaired_event', 1, event_id, '#' || event_id || coalesce(' ' || name, '')
    FROM raw
    WHERE repaired
  )
SELECT
  run_id,
  rank,
  rule,
  sum(rows)::BIGINT AS rows,
  NULL::BIGINT AS ns_affected,
  coalesce(
    left(string_agg(example, ', ' ORDER BY place, example) FILTER (rule = 'redacted_value'), 4000),
    left(arg_min(example, (place, example)), 200)
  ) AS example
FROM found
GROUP BY run_id, rank, rule
