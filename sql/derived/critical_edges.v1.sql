-- /// tw
-- kind     = "table"
-- name     = "critical_edges"
-- version  = 1
-- summary  = "Dependencies between two instants of a scope, with the minimum time that each takes."
-- requires = ["critical_nodes@1", "critical_scopes@1", "critical_start_dependencies@1", "critical_return_dependencies@1", "events@1", "kernels@1"]
-- derived  = "critical_path"
-- grain    = ["run_id", "rank", "scope", "to_node", "from_node", "type"]
-- order    = ["run_id", "rank", "scope", "to_node", "from_node", "type"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- scope       = { type = "VARCHAR", doc = "The scope." }
-- from_node   = { type = "BIGINT", doc = "The earlier node." }
-- to_node     = { type = "BIGINT", doc = "The node that cannot come before it." }
-- type        = { type = "VARCHAR", doc = "On the host: host, host_gap (outside operators and calls), handover (to autograd's threads and back: backward after forward), sync (the return from a wait). On the device: kernel (a GPU activity runs), launch, stream, graph, wait (see critical_start_dependencies). Both: earlier (for work launched before the scope), unknown_wait, end." }
-- category    = { type = "VARCHAR", doc = "Category of its time: host, host_gap, launch, sync, computation, communication, memory, other, kernel_gap (between a GPU activity and one that waits for it), earlier, unknown_wait or end." }
-- evidence    = { type = "VARCHAR", doc = "recorded by the profiler, name (what a call of that name waits for) or inferred from times." }
-- event_id    = { type = "BIGINT", unit = "id", null = true, doc = "Operator, host call or GPU activity that its time is attributed to; null between them." }
-- weight_ns   = { type = "BIGINT", unit = "ns", doc = "Minimum time from one node to the other: for limiting dependencies all the time between them; for others 0, or the time of work launched before the scope." }
-- slack_ns    = { type = "BIGINT", unit = "ns", doc = "How much later the earlier node could have been: time between the nodes minus weight_ns." }
-- is_limiting = { type = "BOOLEAN", doc = "True if it is the last dependency that to_node waited for; each node but the first has one. Of those that end at the same instant: recorded before inferred, then kernel, sync, wait, graph, stream, launch, host, host_gap, handover, earlier, then the later node." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  thread_node AS (
    SELECT
      scope,
      node,
      event_id,
      side,
      ts_ns,
      pid,
      tid,
      lag(node) OVER on_thread AS before_node,
      lag(event_id) OVER on_thread AS before_id,
      lag(side) OVER on_thread AS before_side,
      lag(ts_ns) OVER on_thread AS before_ns,
      -- Slices of the thread that are open just before this node.
      (coalesce(sum(CASE WHEN event_id IS NULL THEN 0 WHEN side = 'start' THEN 1 ELSE -1 END) OVER earlier, 0))::BIGINT AS open
    FROM critical_nodes
    WHERE kind IN ('operator', 'call') OR side = 'host_end'
    WINDOW
      on_thread AS (PARTITION BY scope, pid, tid ORDER BY node),
      earlier AS (PARTITION BY scope, pid, tid ORDER BY node ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  ),
  -- Time between two slices of one parent is the parent's. Python frames may lie in between.
  sibling AS (
    SELECT DISTINCT events.event_id, events.parent_id, events.pre
    FROM thread_node
    JOIN events USING (event_id)
    WHERE thread_node.side = 'start' AND thread_node.before_side = 'end' AND thread_node.open > 0
  ),
  slice AS (
    SELECT DISTINCT events.event_id, events.pre, events.post
    FROM critical_nodes
    JOIN events USING (event_id)
    WHERE critical_nodes.kind IN ('operator', 'call') AND events.post > events.pre
  ),
  near_parent AS (
    SELECT sibling.event_id, sibling.parent_id
    FROM sibling
    JOIN slice ON slice.event_id = sibling.parent_id
  ),
  far_parent AS (
    SELECT sibling.event_id, arg_max(slice.event_id, slice.pre) AS parent_id
    FROM sibling
    ANTI JOIN near_parent USING (event_id)
    JOIN slice ON slice.pre < sibling.pre AND slice.post >= sibling.pre
    GROUP BY sibling.event_id
  ),
  parent AS (
    SELECT event_id, parent_id FROM near_parent
    UNION ALL
    SELECT event_id, parent_id FROM far_parent
  ),
  on_host AS (
    SELECT
      thread_node.scope,
      thread_node.before_node AS from_node,
      thread_node.node AS to_node,
      thread_node.open,
      CASE
        WHEN thread_node.open = 0 THEN NULL
        WHEN thread_node.before_side = 'start' THEN thread_node.before_id
        WHEN thread_node.side = 'end' THEN thread_node.event_id
        ELSE parent.parent_id
      END AS event_id,
      thread_node.before_ns AS at_ns
    FROM thread_node
    LEFT JOIN parent USING (event_id)
    WHERE thread_node.before_node IS NOT NULL
  ),
  -- Autograd runs backward on separate threads while the thread of the scope waits.
  engine_thread AS (
    SELECT DISTINCT thread_node.scope, thread_node.pid, thread_node.tid
    FROM thread_node
    JOIN events USING (event_id)
    JOIN critical_scopes AS scope USING (scope)
    WHERE regexp_matches(events.name, '^(autograd::engine::|torch::autograd::)|Backward[0-9]*$')
      AND (thread_node.pid, thread_node.tid) IS DISTINCT FROM (scope.pid, scope.tid)
  ),
  outer_node AS (
    SELECT
      thread_node.scope,
      thread_node.node,
      thread_node.side,
      thread_node.ts_ns,
      thread_node.open,
      engine_thread.scope IS NOT NULL AS is_engine
    FROM thread_node
    JOIN critical_scopes AS scope USING (scope)
    LEFT JOIN engine_thread
      ON engine_thread.scope = thread_node.scope AND engine_thread.pid = thread_node.pid
      AND engine_thread.tid = thread_node.tid
    WHERE (engine_thread.scope IS NOT NULL OR thread_node.pid = scope.pid AND thread_node.tid = scope.tid)
      AND thread_node.open = CASE WHEN thread_node.side = 'end' THEN 1 ELSE 0 END
  ),
  handover AS (
    SELECT outer_node.scope, finished.node AS from_node, outer_node.node AS to_node, finished.ts_ns AS at_ns
    FROM outer_node
    ASOF JOIN (SELECT scope, node, ts_ns, is_engine FROM outer_node WHERE side = 'end') AS finished
      ON finished.scope = outer_node.scope AND finished.is_engine = (NOT outer_node.is_engine)
      AND finished.node < outer_node.node
    WHERE outer_node.side <> 'end'
  ),
  scope_node AS (
    SELECT
      scope,
      min(node) AS start_node,
      min(ts_ns) AS start_ns,
      min(node) FILTER (side = 'host_end') AS host_end_node,
      max(node) AS end_node
    FROM critical_nodes
    WHERE kind = 'scope'
    GROUP BY scope
  ),
  device_row AS (
    SELECT
      node.scope,
      node.event_id,
      kernels.device,
      kernels.stream,
      kernels.kind,
      min(node.node) AS start_node,
      min(node.ts_ns) AS ts_ns,
      max(node.node) AS end_node
    FROM critical_nodes AS node
    JOIN kernels USING (event_id)
    WHERE node.kind = 'gpu'
    GROUP BY node.scope, node.event_id, kernels.device, kernels.stream, kernels.kind
  ),
  call AS (
    SELECT
      scope,
      event_id,
      min(node) AS start_node,
      max(node) FILTER (side = 'end') AS end_node
    FROM critical_nodes
    WHERE kind = 'call'
    GROUP BY scope, event_id
  ),
  link AS (
    SELECT
      device_row.scope,
      coalesce(call.start_node, other.end_node) AS from_node,
      device_row.start_node AS to_node,
      start.type,
      start.evidence,
      start.to_id AS event_id,
      start.at_ns,
      start.explains
    FROM device_row
    JOIN critical_start_dependencies AS start ON start.to_id = device_row.event_id
    LEFT JOIN call ON call.scope = device_row.scope AND call.event_id = start.from_id
    LEFT JOIN device_row AS other ON other.scope = device_row.scope AND other.event_id = start.from_id
    UNION ALL
    SELECT
      call.scope,
      device_row.end_node,
      call.end_node,
      'sync',
      critical_return_dependencies.evidence,
      call.event_id,
      critical_return_dependencies.at_ns,
      TRUE
    FROM call
    JOIN critical_return_dependencies ON critical_return_dependencies.call_id = call.event_id
    LEFT JOIN device_row ON device_row.scope = call.scope AND device_row.event_id = critical_return_dependencies.from_id
    WHERE call.end_node IS NOT NULL AND critical_return_dependencies.from_id IS NOT NULL
  ),
  -- All dependencies of a node, with the time at which each was satisfied.
  lead AS (
    SELECT
      on_host.scope,
      on_host.from_node,
      on_host.to_node,
      CASE
        WHEN on_host.open = 0 THEN 'host_gap'
        WHEN unexplained.call_id IS NOT NULL THEN 'unknown_wait'
        ELSE 'host'
      END AS type,
      CASE WHEN unexplained.call_id IS NULL THEN 'recorded' ELSE 'inferred' END AS evidence,
      on_host.event_id,
      on_host.at_ns,
      TRUE AS explains
    FROM on_host
    LEFT JOIN critical_return_dependencies AS unexplained ON unexplained.call_id = on_host.event_id AND unexplained.from_id IS NULL
    UNION ALL
    SELECT thread_node.scope, scope_node.start_node, thread_node.node, 'host_gap', 'recorded', NULL, scope_node.start_ns, TRUE
    FROM thread_node
    JOIN scope_node USING (scope)
    WHERE thread_node.before_node IS NULL
    UNION ALL
    SELECT scope, from_node, to_node, 'handover', 'inferred', NULL, at_ns, TRUE
    FROM handover
    UNION ALL
    SELECT scope, start_node, end_node, 'kernel', 'recorded', event_id, ts_ns, TRUE
    FROM device_row
    UNION ALL
    SELECT scope, from_node, to_node, type, evidence, event_id, at_ns, explains
    FROM link
    WHERE from_node IS NOT NULL
    UNION ALL
    SELECT link.scope, scope_node.start_node, link.to_node, 'earlier', 'recorded', link.event_id, max(link.at_ns), TRUE
    FROM link
    JOIN scope_node USING (scope)
    WHERE link.from_node IS NULL AND link.at_ns > scope_node.start_ns
    GROUP BY link.scope, scope_node.start_node, link.to_node, link.event_id
    UNION ALL
    SELECT device_row.scope, scope_node.start_node, device_row.start_node, 'unknown_wait', 'inferred', device_row.event_id, scope_node.start_ns, TRUE
    FROM device_row
    JOIN scope_node USING (scope)
    ANTI JOIN (SELECT scope, to_node FROM link WHERE from_node IS NOT NULL) AS linked
      ON linked.scope = device_row.scope AND linked.to_node = device_row.start_node
    UNION ALL
    SELECT scope_node.scope, max(last.node), scope_node.end_node, 'end', 'recorded', NULL, max(last.ts_ns), TRUE
    FROM scope_node
    JOIN critical_nodes AS last USING (scope)
    LEFT JOIN device_row ON device_row.scope = last.scope AND device_row.end_node = last.node
    WHERE device_row.end_node IS NOT NULL OR last.node = scope_node.host_end_node
    GROUP BY scope_node.scope, scope_node.end_node, device_row.device, device_row.stream
  ),
  ranked AS (
    SELECT
      lead.scope,
      lead.from_node,
      lead.to_node,
      lead.type,
      lead.evidence,
      lead.event_id,
      lead.at_ns,
      lead.explains,
      row_number() OVER (
        PARTITION BY lead.scope, lead.to_node
        ORDER BY lead.at_ns DESC, lead.evidence = 'inferred', list_position(
          ['kernel', 'sync', 'wait', 'graph', 'stream', 'launch', 'host', 'host_gap', 'handover', 'earlier'], lead.type
        ) NULLS LAST, lead.from_node DESC
      ) = 1 AS is_limiting
    FROM lead
  )
SELECT
  node.run_id,
  node.rank,
  node.scope,
  ranked.from_node,
  ranked.to_node,
  CASE WHEN ranked.is_limiting AND NOT ranked.explains THEN 'unknown_wait' ELSE ranked.type END AS type,
  CASE
    WHEN ranked.is_limiting AND NOT ranked.explains THEN 'unknown_wait'
    WHEN ranked.type = 'kernel' THEN device_row.kind
    WHEN ranked.type IN ('stream', 'graph', 'wait') THEN 'kernel_gap'
    WHEN ranked.type = 'handover' THEN 'host_gap'
    ELSE ranked.type
  END AS category,
  CASE WHEN ranked.is_limiting AND NOT ranked.explains THEN 'inferred' ELSE ranked.evidence END AS evidence,
  ranked.event_id,
  CASE
    WHEN ranked.is_limiting THEN node.ts_ns - before.ts_ns
    WHEN ranked.type = 'earlier' THEN ranked.at_ns - before.ts_ns
    ELSE 0
  END AS weight_ns,
  node.ts_ns - before.ts_ns - weight_ns AS slack_ns,
  ranked.is_limiting
FROM ranked
JOIN critical_nodes AS node ON node.scope = ranked.scope AND node.node = ranked.to_node
JOIN critical_nodes AS before ON before.scope = ranked.scope AND before.node = ranked.from_node
LEFT JOIN device_row ON device_row.scope = ranked.scope AND device_row.end_node = ranked.to_node
