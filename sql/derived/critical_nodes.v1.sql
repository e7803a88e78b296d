-- /// tw
-- kind     = "table"
-- name     = "critical_nodes"
-- version  = 1
-- summary  = "Instants of a scope at which an operator, a host call or a GPU activity starts or ends."
-- requires = ["critical_scopes@1", "events@1", "runtime@1", "kernels@1"]
-- derived  = "critical_path"
-- grain    = ["run_id", "rank", "scope", "node"]
-- order    = ["run_id", "rank", "scope", "node"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- scope    = { type = "VARCHAR", doc = "`step N`, `annotation NAME#K` or `trace`: everything that starts in it on the host, and the GPU activities launched there that do not start before it; nothing after its end." }
-- node     = { type = "BIGINT", doc = "Number in time order, starting at 1; dependencies lead from lower to higher numbers." }
-- kind     = { type = "VARCHAR", doc = "scope, operator, call or gpu." }
-- event_id = { type = "BIGINT", unit = "id", null = true, doc = "The operator, host call or GPU activity; null for the scope." }
-- side     = { type = "VARCHAR", doc = "start or end; for the scope also host_end, the end of its interval on the host: its end is that of its last GPU activity, if later." }
-- ts_ns    = { type = "BIGINT", signed = true, unit = "ts", doc = "The instant." }
-- pid      = { type = "VARCHAR", null = true, doc = "The process; null for GPU activities." }
-- tid      = { type = "VARCHAR", null = true, doc = "The thread; null for GPU activities." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  slice AS (
    SELECT
      events.event_id,
      CASE WHEN runtime.event_id IS NULL THEN 'operator' ELSE 'call' END AS kind,
      events.pid,
      events.tid,
      events.ts_ns,
      events.ts_ns + events.dur_ns AS end_ns,
      events.pre
    FROM events
    LEFT JOIN runtime USING (event_id)
    WHERE events.pre IS NOT NULL AND (
      runtime.event_id IS NOT NULL
      OR events.category = 'cpu_op' AND NOT starts_with(coalesce(events.name, ''), 'ProfilerStep#')
    )
  ),
  host AS (
    SELECT
      scope.scope,
      slice.kind,
      slice.event_id,
      slice.pid,
      slice.tid,
      slice.ts_ns,
      slice.end_ns,
      slice.pre
    FROM critical_scopes AS scope
    JOIN slice ON slice.ts_ns >= scope.start_ns AND slice.ts_ns < scope.end_ns
  ),
  device AS (
    SELECT scope.scope, kernels.event_id, kernels.ts_ns, kernels.ts_ns + kernels.dur_ns AS end_ns
    FROM kernels
    LEFT JOIN runtime AS call ON call.event_id = kernels.runtime_id
    JOIN critical_scopes AS scope
      ON kernels.ts_ns >= scope.start_ns AND (
        call.ts_ns >= scope.start_ns AND call.ts_ns < scope.end_ns
        OR scope.entire_trace AND call.event_id IS NULL
      )
  ),
  extent AS (
    SELECT
      scope.run_id,
      scope.rank,
      scope.scope,
      scope.start_ns,
      scope.end_ns AS host_end_ns,
      greatest(scope.end_ns, coalesce(max(device.end_ns), scope.end_ns)) AS end_ns,
      scope.pid,
      scope.tid
    FROM critical_scopes AS scope
    LEFT JOIN device USING (scope)
    GROUP BY scope.run_id, scope.rank, scope.scope, scope.start_ns, scope.end_ns, scope.pid, scope.tid
  ),
  -- At one instant: GPU activities end, host slices end (inner first), host slices start (outer first),
  -- host slices without duration start and end, GPU activities start.
  instant AS (
    SELECT scope, 'scope' AS kind, NULL AS event_id, 'start' AS side, start_ns AS ts_ns, pid, tid, 0 AS turn, 0 AS order_in_turn
    FROM extent
    UNION ALL
    SELECT scope, 'scope', NULL, 'host_end', host_end_ns, pid, tid, 3, 0
    FROM extent
    UNION ALL
    SELECT scope, 'scope', NULL, 'end', end_ns, NULL, NULL, 7, 0
    FROM extent
    UNION ALL
    SELECT scope, kind, event_id, 'start', ts_ns, pid, tid, CASE WHEN end_ns > ts_ns THEN 3 ELSE 4 END, pre
    FROM host
    UNION ALL
    SELECT scope, kind, event_id, 'end', end_ns, pid, tid, CASE WHEN end_ns > ts_ns THEN 2 ELSE 4 END,
      CASE WHEN end_ns > ts_ns THEN -pre ELSE pre END
    FROM host
    UNION ALL
    SELECT scope, 'gpu', event_id, 'start', ts_ns, NULL, NULL, 5, event_id
    FROM device
    UNION ALL
    SELECT scope, 'gpu', event_id, 'end', end_ns, NULL, NULL, CASE WHEN end_ns > ts_ns THEN 1 ELSE 6 END, event_id
    FROM device
  )
SELECT
  extent.run_id,
  extent.rank,
  instant.scope,
  row_number() OVER (
    PARTITION BY instant.scope
    ORDER BY instant.ts_ns, instant.turn, instant.order_in_turn, instant.side = 'end'
  ) AS node,
  instant.kind,
  instant.event_id,
  instant.side,
  instant.ts_ns,
  instant.pid,
  instant.tid
FROM instant
JOIN extent USING (scope)
WHERE instant.ts_ns <= extent.end_ns
