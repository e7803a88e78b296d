-- /// tw
-- kind     = "table"
-- name     = "flows"
-- version  = 1
-- summary  = "An end of an arrow between two rows, and the end where the arrow starts."
-- requires = ["events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The row." }
-- category = { type = "VARCHAR", null = true, doc = "What the arrow says: ac2g (launch to GPU row), fwdbwd, …." }
-- flow_id  = { type = "VARCHAR", null = true, doc = "The arrow's id, unique in its category." }
-- name     = { type = "VARCHAR", null = true, doc = "The arrow's name." }
-- role     = { type = "VARCHAR", doc = "start, step or end." }
-- pid      = { type = "VARCHAR", null = true, doc = "The process." }
-- tid      = { type = "VARCHAR", null = true, doc = "The thread." }
-- ts_ns    = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When." }
-- start_id = { type = "BIGINT", null = true, unit = "id", doc = "The row where the arrow starts, itself for a start; null where the file has none." }
-- slice_id = { type = "BIGINT", null = true, unit = "id", doc = "The operator that starts at this time on this thread, innermost; null for ac2g, whose ends are in `correlations`." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  flow AS (
    SELECT
      run_id,
      rank,
      event_id,
      category,
      raw_category,
      flow_id,
      name,
      CASE ph WHEN 's' THEN 'start' WHEN 't' THEN 'step' ELSE 'end' END AS role,
      pid,
      tid,
      ts_ns
    FROM events
    WHERE ph IN ('s', 't', 'f')
  ),
  paired AS (
    -- Of several starts the last one before the end.
    SELECT tip.event_id, tail.event_id AS start_id
    FROM flow AS tip
    JOIN flow AS tail
      ON tail.role = 'start' AND tail.flow_id = tip.flow_id
      AND tail.raw_category IS NOT DISTINCT FROM tip.raw_category
    WHERE tip.role <> 'start'
    QUALIFY row_number() OVER (
      PARTITION BY tip.event_id ORDER BY tail.ts_ns > tip.ts_ns, abs(tip.ts_ns - tail.ts_ns), tail.event_id
    ) = 1
  ),
  bound AS (
    SELECT flow.event_id, arg_max(op.event_id, op.pre) AS slice_id
    FROM flow
    JOIN events AS op ON op.pid = flow.pid AND op.tid = flow.tid AND op.ts_ns = flow.ts_ns
    WHERE flow.category <> 'ac2g' AND op.category = 'cpu_op' AND op.pre IS NOT NULL
    GROUP BY flow.event_id
  )
SELECT
  flow.run_id,
  flow.rank,
  flow.event_id,
  flow.category,
  flow.flow_id,
  flow.name,
  flow.role,
  flow.pid,
  flow.tid,
  flow.ts_ns,
  CASE WHEN flow.role = 'start' THEN flow.event_id ELSE paired.start_id END AS start_id,
  bound.slice_id
FROM flow
LEFT JOIN paired ON paired.event_id = flow.event_id
LEFT JOIN bound ON bound.event_id = flow.event_id
