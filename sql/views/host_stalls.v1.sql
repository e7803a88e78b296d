-- /// tw
-- kind     = "view"
-- name     = "host_stalls"
-- version  = 1
-- summary  = "Host slices that stall launches: first calls that take long, compilation, and calls that allocate or free memory in the driver."
-- requires = ["runtime@1", "events@1", "steps@1", "ranks@1", "stall_rules@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The slice." }
-- name     = { type = "VARCHAR", doc = "Its name." }
-- kind     = { type = "VARCHAR", doc = "startup: before the third step or, with fewer steps, at any time, a first call as in `stall_rules` (not one that waits for the device or copies, or begins after the last GPU activity), or compilation. compilation: later. allocation: another call that allocates or frees memory." }
-- start_ns = { type = "BIGINT", unit = "ts", signed = true, doc = "Its start." }
-- end_ns   = { type = "BIGINT", unit = "ts", signed = true, doc = "Its end." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  third AS (
    SELECT run_id, rank, host_start_ns AS start_ns
    FROM steps
    QUALIFY row_number() OVER (PARTITION BY run_id, rank ORDER BY host_start_ns, step) = 3
  ),
  named AS (
    SELECT host.name, rule.what, rule.min_ns, rule.min_share, rule.median_factor
    FROM (SELECT DISTINCT name FROM events WHERE pre IS NOT NULL) AS host
    JOIN stall_rules AS rule ON regexp_matches(host.name, rule.pattern)
  ),
  long_call AS (
    SELECT
      call.run_id,
      call.rank,
      call.event_id,
      call.name,
      call.pid,
      call.ts_ns,
      call.dur_ns,
      named.what,
      named.median_factor
    FROM runtime AS call
    JOIN named USING (name)
    JOIN ranks USING (run_id, rank)
    WHERE
      (
        call.dur_ns >= named.min_ns
        OR call.dur_ns >= named.min_ns // 10 AND call.dur_ns >= named.min_share * (ranks.end_ns - ranks.start_ns)
      )
      AND (named.what = 'allocation' OR named.what = 'first_call' AND call.ts_ns < ranks.gpu_end_ns)
      AND NOT call.is_sync
      AND NOT regexp_matches(call.name, '(?i)memcpy')
  ),
  first_call AS (
    SELECT
      long_call.run_id,
      long_call.rank,
      long_call.event_id,
      long_call.name,
      long_call.ts_ns,
      long_call.dur_ns,
      coalesce(quantile_disc(later.dur_ns, 0.5), 0) AS later_median_ns,
      coalesce(quantile_disc(later.dur_ns, 0.95), 0) AS later_p95_ns
    FROM long_call
    LEFT JOIN runtime AS later
      ON later.run_id = long_call.run_id
      AND later.rank = long_call.rank
      AND later.name = long_call.name
      AND later.pid IS NOT DISTINCT FROM long_call.pid
      AND later.ts_ns > long_call.ts_ns
    WHERE long_call.what = 'first_call'
    GROUP BY ALL
    HAVING long_call.dur_ns >= any_value(long_call.median_factor) * later_median_ns AND long_call.dur_ns >= 2 * later_p95_ns
  ),
  slice AS (
    SELECT run_id, rank, event_id, name, ts_ns, dur_ns, 'first_call' AS what
    FROM first_call
    UNION ALL
    SELECT run_id, rank, event_id, name, ts_ns, dur_ns, what
    FROM long_call
    WHERE what = 'allocation'
    UNION ALL
    SELECT event.run_id, event.rank, event.event_id, event.name, event.ts_ns, event.dur_ns, named.what
    FROM events AS event
    JOIN named ON named.name = event.name AND named.what = 'compilation'
    WHERE event.pre IS NOT NULL AND event.dur_ns >= named.min_ns
  ),
  timed AS (
    SELECT
      slice.run_id,
      slice.rank,
      slice.event_id,
      slice.name,
      slice.ts_ns,
      slice.dur_ns,
      CASE
        WHEN slice.what = 'allocation' THEN 'allocation'
        WHEN third.start_ns IS NULL OR slice.ts_ns < third.start_ns THEN 'startup'
        WHEN slice.what = 'compilation' THEN 'compilation'
      END AS kind
    FROM slice
    LEFT JOIN third USING (run_id, rank)
  )
SELECT
  run_id,
  rank,
  event_id,
  name,
  -- Of two, start-up counts.
  max(kind) AS kind,
  ts_ns AS start_ns,
  ts_ns + dur_ns AS end_ns
FROM timed
WHERE kind IS NOT NULL
GROUP BY run_id, rank, event_id, name, ts_ns, dur_ns
