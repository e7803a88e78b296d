-- /// tw
-- kind     = "analysis"
-- name     = "op_summary"
-- version  = 1
-- summary  = "Number of calls and self and total time of each operator, on host and GPU."
-- requires = ["kernel_operators@1", "kernels@1", "operators@1"]
-- grain    = ["run_id", "rank", "name", "shapes"]
-- per      = "window"
-- order    = ["run_id", "rank", "-kernel_self_sum_ns", "-host_self_ns", "name", "shapes"]
--
-- [params]
-- by_shapes = { type = "BOOLEAN", default = false, doc = "Separate operators of the same name by their input shapes." }
--
-- [columns]
-- run_id               = { type = "VARCHAR", doc = "The run." }
-- rank                 = { type = "INTEGER", doc = "The rank." }
-- name                 = { type = "VARCHAR", null = true, doc = "Operator name; null for all GPU activities with an unknown launch or launched outside operators. Empty if the trace gives none." }
-- shapes               = { type = "VARCHAR", null = true, doc = "Input shapes; null without by_shapes or if not recorded." }
-- count                = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Number of calls, including recursive ones." }
-- host_ns              = { type = "BIGINT", unit = "ns", better = "lower", doc = "Host time in the operator and everything it called; recursive calls count once, threads are summed." }
-- host_self_ns         = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Self time: the part of host_ns outside operators that it called; runtime calls and Python count as self time. Over all names it sums to the time that threads spent in operators." }
-- kernel_self_count    = { type = "BIGINT", unit = "count", aggregate = "sum", null = true, doc = "GPU activities whose innermost operator it is; over all names, each GPU activity counts once. Null, like all columns below, if the rank has no GPU activity." }
-- kernel_self_sum_ns   = { type = "BIGINT", unit = "ns", aggregate = "sum", null = true, better = "lower", doc = "Sum of their durations." }
-- kernel_self_graph_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", null = true, doc = "Part of kernel_self_sum_ns in graph launches with several GPU activities: the operator encloses only the launch of the graph, not the work. See `kernels_attributed` for the operators at capture." }
-- kernel_self_union_ns = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Time with at least one of them running, on any stream; devices are summed." }
-- kernel_count         = { type = "BIGINT", unit = "count", null = true, doc = "GPU activities launched by it or by an operator that it called; each counts once, even in recursive calls." }
-- kernel_sum_ns        = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Sum of their durations." }
-- kernel_union_ns      = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Time with at least one of them running, on any stream; devices are summed." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  called AS MATERIALIZED (
    SELECT
      run_id,
      rank,
      event_id,
      coalesce(name, '') AS name,
      CASE WHEN $by_shapes THEN shapes::VARCHAR END AS shapes,
      pid,
      tid,
      ts_ns,
      ts_ns + dur_ns AS end_ns,
      parent_id
    FROM operators
  ),
  label AS MATERIALIZED (
    -- Rows of the result, numbered: one per name of a rank, and one without a name per rank with GPU activity.
    SELECT run_id, rank, name, shapes, row_number() OVER (ORDER BY run_id, rank, name, shapes) AS label_id
    FROM (
      SELECT DISTINCT run_id, rank, name, shapes
      FROM called
      UNION
      SELECT run_id, rank, NULL AS name, NULL AS shapes
      FROM kernels
      UNION
      -- Operators that XLA names, whose calls are not recorded.
      SELECT run_id, rank, op_sig AS name, NULL AS shapes
      FROM kernels
      WHERE op_id IS NULL
    ) AS known
  ),
  op AS MATERIALIZED (
    SELECT
      called.run_id,
      called.rank,
      called.event_id,
      label.label_id,
      called.pid,
      called.tid,
      called.ts_ns,
      called.end_ns,
      called.parent_id
    FROM called
    JOIN label
      ON label.run_id = called.run_id
      AND label.rank = called.rank
      AND label.name = called.name
      AND label.shapes IS NOT DISTINCT FROM called.shapes
  ),
  cover AS (
    -- Time that an operator takes from enclosing ones: its parent and, where it outlives that, the next one out.
    SELECT
      inside.run_id,
      inside.rank,
      inside.end_ns,
      around.event_id AS holder_id,
      around.parent_id AS next_id,
      greatest(inside.ts_ns, around.end_ns) AS reach_ns,
      greatest(least(inside.end_ns, around.end_ns) - inside.ts_ns, 0) AS covered_ns
    FROM op AS inside
    JOIN op AS around
      ON around.run_id = inside.run_id AND around.rank = inside.rank AND around.event_id = inside.parent_id
    UNION ALL
    SELECT
      cover.run_id,
      cover.rank,
      cover.end_ns,
      around.event_id AS holder_id,
      around.parent_id AS next_id,
      greatest(cover.reach_ns, around.end_ns) AS reach_ns,
      greatest(least(cover.end_ns, around.end_ns) - cover.reach_ns, 0) AS covered_ns
    FROM cover
    JOIN op AS around
      ON around.run_id = cover.run_id AND around.rank = cover.rank AND around.event_id = cover.next_id
    WHERE cover.end_ns > cover.reach_ns
  ),
  covered AS (
    SELECT run_id, rank, holder_id, sum(covered_ns)::BIGINT AS covered_ns
    FROM cover
    GROUP BY run_id, rank, holder_id
  ),
  timed AS (
    SELECT
      op.label_id,
      op.end_ns - op.ts_ns - coalesce(covered.covered_ns, 0) AS self_ns,
      -- Latest end of earlier calls of this name on the thread: time up to here is already counted.
      greatest(op.end_ns - greatest(op.ts_ns, coalesce(max(op.end_ns) OVER earlier, op.ts_ns)), 0) AS fresh_ns
    FROM op
    LEFT JOIN covered
      ON covered.run_id = op.run_id AND covered.rank = op.rank AND covered.holder_id = op.event_id
    WINDOW earlier AS (
      PARTITION BY op.label_id, op.pid, op.tid
      ORDER BY op.ts_ns, op.event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  host AS (
    SELECT
      label_id,
      count(*) AS count,
      sum(fresh_ns)::BIGINT AS host_ns,
      sum(self_ns)::BIGINT AS host_self_ns
    FROM timed
    GROUP BY label_id
  ),
  graph_launch AS (
    SELECT run_id, rank, runtime_id
    FROM kernels
    WHERE contains(launch_api, 'GraphLaunch')
    GROUP BY run_id, rank, runtime_id
    HAVING count(*) > 1
  ),
  gpu_row AS (
    -- Each activity with the label of its operator, and the label of activities without one.
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      kernels.op_id,
      kernels.device,
      kernels.ts_ns,
      kernels.dur_ns,
      coalesce(op.label_id, named.label_id) AS label_id,
      bare.label_id AS bare_id,
      CASE WHEN graph_launch.runtime_id IS NULL THEN 0 ELSE kernels.dur_ns END AS graph_ns
    FROM kernels
    LEFT JOIN graph_launch USING (run_id, rank, runtime_id)
    JOIN label AS bare ON bare.run_id = kernels.run_id AND bare.rank = kernels.rank AND bare.name IS NULL
    LEFT JOIN op ON op.run_id = kernels.run_id AND op.rank = kernels.rank AND op.event_id = kernels.op_id
    LEFT JOIN label AS named
      ON named.run_id = kernels.run_id
      AND named.rank = kernels.rank
      AND named.name = kernels.op_sig
      AND named.shapes IS NULL
      AND kernels.op_id IS NULL
  ),
  use AS (
    -- A GPU activity under each name enclosing its launch, and once more under the innermost.
    SELECT gpu_row.event_id, around.label_id, FALSE AS own, gpu_row.device, gpu_row.ts_ns, gpu_row.dur_ns, 0 AS graph_ns
    FROM (
      SELECT DISTINCT above.run_id, above.rank, above.kernel_id, op.label_id
      FROM kernel_operators AS above
      JOIN op ON op.run_id = above.run_id AND op.rank = above.rank AND op.event_id = above.op_id
    ) AS around
    JOIN gpu_row
      ON gpu_row.run_id = around.run_id AND gpu_row.rank = around.rank AND gpu_row.event_id = around.kernel_id
    UNION ALL
    SELECT event_id, coalesce(label_id, bare_id) AS label_id, TRUE AS own, device, ts_ns, dur_ns, graph_ns
    FROM gpu_row
    UNION ALL
    SELECT event_id, coalesce(label_id, bare_id) AS label_id, FALSE AS own, device, ts_ns, dur_ns, 0 AS graph_ns
    FROM gpu_row
    WHERE op_id IS NULL
  ),
  used AS (
    SELECT
      label_id,
      own,
      dur_ns,
      graph_ns,
      greatest(
        ts_ns + dur_ns - greatest(ts_ns, coalesce(max(ts_ns + dur_ns) OVER earlier_use, ts_ns)),
        0
      ) AS fresh_ns
    FROM use
    WINDOW earlier_use AS (
      PARTITION BY label_id, own, device
      ORDER BY ts_ns, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  device AS (
    SELECT
      label_id,
      count(*) FILTER (own) AS kernel_self_count,
      coalesce(sum(dur_ns) FILTER (own), 0)::BIGINT AS kernel_self_sum_ns,
      coalesce(sum(graph_ns), 0)::BIGINT AS kernel_self_graph_ns,
      coalesce(sum(fresh_ns) FILTER (own), 0)::BIGINT AS kernel_self_union_ns,
      count(*) FILTER (NOT own) AS kernel_count,
      sum(dur_ns) FILTER (NOT own)::BIGINT AS kernel_sum_ns,
      sum(fresh_ns) FILTER (NOT own)::BIGINT AS kernel_union_ns
    FROM used
    GROUP BY label_id
  )
SELECT
  label.run_id,
  label.rank,
  label.name,
  label.shapes,
  coalesce(host.count, 0) AS count,
  coalesce(host.host_ns, 0) AS host_ns,
  coalesce(host.host_self_ns, 0) AS host_self_ns,
  CASE WHEN bare.rank IS NOT NULL THEN coalesce(device.kernel_self_count, 0) END AS kernel_self_count,
  CASE WHEN bare.rank IS NOT NULL THEN coalesce(device.kernel_self_sum_ns, 0) END AS kernel_self_sum_ns,
  CASE WHEN bare.rank IS NOT NULL THEN coalesce(device.kernel_self_graph_ns, 0) END AS kernel_self_graph_ns,
  CASE WHEN bare.rank IS NOT NULL THEN coalesce(device.kernel_self_union_ns, 0) END AS kernel_self_union_ns,
  CASE WHEN bare.rank IS NOT NULL THEN coalesce(device.kernel_count, 0) END AS kernel_count,
  CASE WHEN bare.rank IS NOT NULL THEN coalesce(device.kernel_sum_ns, 0) END AS kernel_sum_ns,
  CASE WHEN bare.rank IS NOT NULL THEN coalesce(device.kernel_union_ns, 0) END AS kernel_union_ns
FROM label
LEFT JOIN label AS bare ON bare.run_id = label.run_id AND bare.rank = label.rank AND bare.name IS NULL
LEFT JOIN host ON host.label_id = label.label_id
LEFT JOIN device ON device.label_id = label.label_id
WHERE label.name IS NOT NULL OR device.label_id IS NOT NULL
