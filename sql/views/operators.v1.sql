-- /// tw
-- kind     = "view"
-- name     = "operators"
-- version  = 1
-- summary  = "Operators on host threads, each with its enclosing operator."
-- requires = ["events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- event_id  = { type = "BIGINT", unit = "id", doc = "The operator." }
-- name      = { type = "VARCHAR", null = true, doc = "Operator name." }
-- pid       = { type = "VARCHAR", null = true, doc = "The process." }
-- tid       = { type = "VARCHAR", null = true, doc = "The thread." }
-- ts_ns     = { type = "BIGINT", unit = "ts", signed = true, doc = "Start time." }
-- dur_ns    = { type = "BIGINT", unit = "ns", doc = "Duration." }
-- step      = { type = "BIGINT", unit = "id", null = true, doc = "The profiler step that contains its start." }
-- shapes    = { type = "JSON", null = true, doc = "Input shapes." }
-- level     = { type = "BIGINT", unit = "depth", doc = "Nesting level among operators, itself included; other frames in between do not count. 1 for a root." }
-- parent_id = { type = "BIGINT", unit = "id", null = true, doc = "The innermost enclosing operator in nesting order; if slices overlap without nesting, it may have ended before this one began." }
-- pre       = { type = "BIGINT", unit = "id", doc = "Position in nesting order (preorder)." }
-- post      = { type = "BIGINT", unit = "id", doc = "Position of its last descendant." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  op AS (
    SELECT run_id, rank, event_id, pre, post, row_number() OVER (PARTITION BY run_id, rank ORDER BY pre) AS begun
    FROM events
    WHERE category = 'cpu_op' AND pre IS NOT NULL
  ),
  edge AS (
    -- Each start, and each end placed after the last descendant: odd and even positions.
    SELECT run_id, rank, event_id, 2 * pre + 1 AS place, begun
    FROM op
    UNION ALL
    SELECT run_id, rank, event_id, 2 * (post + 1) AS place, NULL::BIGINT AS begun
    FROM op
  ),
  counted AS (
    -- Operators begun and not yet ended: of all edges so far, those that are not starts are ends.
    SELECT
      run_id,
      rank,
      event_id,
      place,
      begun,
      2 * begun - row_number() OVER (PARTITION BY run_id, rank ORDER BY place) AS level
    FROM edge
  ),
  rung AS (
    -- Each operator at its own level, and one level deeper, where it is the parent of others.
    SELECT run_id, rank, level AS rung, place, event_id, NULL::BIGINT AS holder_id
    FROM counted
    WHERE begun IS NOT NULL
    UNION ALL
    SELECT run_id, rank, level + 1 AS rung, place, event_id, event_id AS holder_id
    FROM counted
    WHERE begun IS NOT NULL
  ),
  held AS (
    SELECT
      run_id,
      rank,
      event_id,
      rung AS level,
      holder_id,
      -- The last holder: the maximum of place and holder, packed into one number.
      (
        max((place::HUGEINT << 64) + holder_id) OVER (
          PARTITION BY run_id, rank, rung
          ORDER BY place, event_id
          ROWS UNBOUNDED PRECEDING
        )
        & 18446744073709551615
      )::BIGINT AS parent_id
    FROM rung
  )
SELECT
  events.run_id,
  events.rank,
  events.event_id,
  events.name,
  events.pid,
  events.tid,
  events.ts_ns,
  events.dur_ns,
  events.step,
  events.shapes,
  held.level,
  held.parent_id,
  events.pre,
  events.post
FROM events
JOIN held
  ON held.run_id = events.run_id
  AND held.rank = events.rank
  AND held.event_id = events.event_id
  AND held.holder_id IS NULL
WHERE events.category = 'cpu_op' AND events.pre IS NOT NULL
