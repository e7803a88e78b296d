-- /// tw
-- kind     = "analysis"
-- name     = "module_summary"
-- version  = 1
-- summary  = "GPU and host time of each nn.Module, itself and with its submodules, by pass."
-- requires = ["annotations@1", "events@1", "graph_nodes@1", "kernel_modules@1", "kernels@1", "modules@1", "op_limits@1", "op_work@1"]
-- grain    = ["run_id", "rank", "module_path"]
-- per      = "window"
-- order    = ["run_id", "rank", "-kernel_sum_ns", "-host_ns", "module_path"]
--
-- [params]
-- by_class      = { type = "BOOLEAN", default = false, doc = "Merge instances of a class: paths have classes in place of instances." }
-- max_depth     = { type = "BIGINT", min = 1, unit = "depth", doc = "Maximum number of names in a path; what is deeper counts as self of the module at this depth." }
-- by_annotation = { type = "BOOLEAN", default = false, doc = "For ranks without modules: use the annotations enclosing each launch instead, steps left out." }
--
-- [columns]
-- run_id               = { type = "VARCHAR", doc = "The run." }
-- rank                 = { type = "INTEGER", doc = "The rank." }
-- module_path          = { type = "VARCHAR", doc = "Modules, outermost first, joined by ` > `; of GPU activities that a graph replayed those of its capture (`tw derive graphs`). GPU activities without a module are in the rows (gradient accumulation), (communication), (optimizer) and (outside any module)." }
-- depth                = { type = "BIGINT", unit = "depth", null = true, doc = "Number of names in the path; null for the rows in parentheses." }
-- calls                = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Calls of the module, recomputation included." }
-- host_ns              = { type = "BIGINT", unit = "ns", better = "lower", doc = "Sum of their durations on the host." }
-- host_self_ns         = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "The part of host_ns outside of submodules." }
-- kernel_self_count    = { type = "BIGINT", unit = "count", aggregate = "sum", null = true, doc = "GPU activities that belong to the module itself, of all passes; over all rows, each counts once. Null, like all columns up to kernel_union_ns, if the rank has no GPU activity." }
-- kernel_self_sum_ns   = { type = "BIGINT", unit = "ns", aggregate = "sum", null = true, better = "lower", doc = "Sum of their durations; over all rows, that of all GPU activities." }
-- kernel_self_union_ns = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Time with at least one of them running, on any stream; devices are summed." }
-- kernels              = { type = "BIGINT", unit = "count", null = true, doc = "GPU activities of the module and its submodules." }
-- kernel_sum_ns        = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Sum of their durations." }
-- kernel_union_ns      = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Time with at least one of them running." }
-- forward_ns           = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Time with at least one of them running that was launched in forward. On a rank without GPU activity, that of the operators of forward with a rule in `flop_rules`, on the host; null without one." }
-- backward_ns          = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "The same for backward." }
-- recompute_ns         = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "The same for recomputation under checkpointing." }
-- optimizer_ns         = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "The same for the optimizer." }
-- communication_ns     = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Time with communication running; only in its own row, as communication belongs to no module." }
-- model_flop           = { type = "BIGINT", unit = "flop", null = true, doc = "FLOP of the operators whose main kernel belongs to the module or its submodules, as far as known (`op_work`); on a rank without GPU activity of the operators themselves, those of backward as their forward. Null if none is." }
-- bytes                = { type = "BIGINT", unit = "bytes", null = true, doc = "Sum of the bytes that the operators with a rule read and write, if every operand is moved once; null if none is known." }
-- roofline= { type = "DOUBLE", unit = "ratio", null = true, better = "higher", doc = "Of the time of operators whose FLOP or bytes and peak rates are known, the share that they need at the nearer limit (`op_limits`). Null without such an operator." }
-- share                = { type = "DOUBLE", unit = "ratio", null = true, doc = "kernel_sum_ns as a share of the sum over all GPU activities of the rank." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  annotated AS (
    -- The path of each annotation, empty for steps.
    SELECT run_id, rank, event_id, CASE WHEN regexp_matches(name, '^ProfilerStep#| step_num=') THEN '' ELSE name END AS path
    FROM annotations
    WHERE $by_annotation AND NOT on_gpu AND parent_id IS NULL
    UNION ALL
    SELECT
      inside.run_id,
      inside.rank,
      inside.event_id,
      CASE
        WHEN regexp_matches(inside.name, '^ProfilerStep#| step_num=') THEN annotated.path
        WHEN annotated.path = '' THEN inside.name
        ELSE annotated.path || ' > ' || inside.name
      END AS path
    FROM annotated
    JOIN annotations AS inside
      ON inside.run_id = annotated.run_id AND inside.rank = annotated.rank AND inside.parent_id = annotated.event_id
    WHERE NOT inside.on_gpu
  ),
  call AS MATERIALIZED (
    SELECT
      run_id,
      rank,
      event_id,
      parent_id,
      CASE WHEN $by_class THEN class_path ELSE module_path END AS path,
      ts_ns,
      ts_ns + host_ns AS end_ns
    FROM modules
    UNION ALL
    SELECT
      annotated.run_id,
      annotated.rank,
      annotated.event_id,
      annotations.parent_id,
      annotated.path,
      annotations.ts_ns,
      annotations.ts_ns + annotations.dur_ns AS end_ns
    FROM annotated
    JOIN annotations USING (run_id, rank, event_id)
    ANTI JOIN modules USING (run_id, rank)
    WHERE annotated.path <> '' AND NOT regexp_matches(annotations.name, '^ProfilerStep#| step_num=')
  ),
  work AS (
    SELECT
      run_id,
      rank,
      main_kernel_id,
      sum(model_flop)::BIGINT AS model_flop,
      sum(read_bytes + write_bytes)::BIGINT AS bytes
    FROM op_work
    GROUP BY run_id, rank, main_kernel_id
  ),
  limited AS (
    -- FLOP without a known peak have no limit, even if their bytes have one.
    SELECT
      run_id,
      rank,
      kernel_id,
      CASE
        WHEN hardware_flop > 0 AND limit_flop_per_ns IS NULL THEN NULL
        ELSE greatest(hardware_flop / limit_flop_per_ns, bytes / limit_bytes_per_ns)
      END AS limit_ns,
      CASE WHEN limit_ns IS NOT NULL THEN gpu_union_ns END AS limited_ns
    FROM op_limits
  ),
  captured AS (
    -- Of GPU activities that a graph replayed: the modules in which the graph was captured.
    SELECT
      run_id,
      rank,
      event_id,
      CASE WHEN $by_class THEN regexp_replace(path, '_\d+( > |$)', '\1', 'g') ELSE path END AS path
    FROM (
      SELECT run_id, rank, event_id, replace(module_path, 'nn.Module: ', '') AS path
      FROM graph_nodes
      WHERE module_path IS NOT NULL
    ) AS node
  ),
  placed AS MATERIALIZED (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      kernels.device,
      kernels.ts_ns,
      kernels.ts_ns + kernels.dur_ns AS end_ns,
      kernels.dur_ns,
      work.model_flop,
      work.bytes,
      limited.limit_ns,
      limited.limited_ns,
      CASE WHEN kernels.kind = 'communication' THEN kernels.kind ELSE kernels.pass END AS pass,
      coalesce(
        captured.path,
        CASE WHEN $by_class THEN owner.class_path ELSE owner.module_path END,
        CASE
          WHEN kernels.kind = 'communication' THEN '(communication)'
          WHEN owner.kernel_id IS NULL THEN nullif(annotated.path, '')
        END,
        CASE WHEN kernels.pass = 'optimizer' THEN '(optimizer)' ELSE '(outside any module)' END
      ) AS path
    FROM kernels
    LEFT JOIN kernel_modules AS owner
      ON owner.run_id = kernels.run_id AND owner.rank = kernels.rank AND owner.kernel_id = kernels.event_id
    LEFT JOIN annotated
      ON annotated.run_id = kernels.run_id
      AND annotated.rank = kernels.rank
      AND annotated.event_id = kernels.annotation_id
    LEFT JOIN captured
      ON captured.run_id = kernels.run_id
      AND captured.rank = kernels.rank
      AND captured.event_id = kernels.event_id
      AND kernels.kind <> 'communication'
    LEFT JOIN work
      ON work.run_id = kernels.run_id AND work.rank = kernels.rank AND work.main_kernel_id = kernels.event_id
    LEFT JOIN limited
      ON limited.run_id = kernels.run_id AND limited.rank = kernels.rank AND limited.kernel_id = kernels.event_id
  ),
  host_rank AS MATERIALIZED (
    SELECT DISTINCT op_work.run_id, op_work.rank
    FROM op_work
    ANTI JOIN kernels USING (run_id, rank)
  ),
  line AS MATERIALIZED (
    -- Host slices of ranks without GPU activity.
    SELECT events.run_id, events.rank, events.event_id, events.parent_id, events.sequence_number, events.ts_ns, events.dur_ns
    FROM events
    SEMI JOIN host_rank USING (run_id, rank)
    WHERE events.pre IS NOT NULL
  ),
  recorded AS (
    SELECT run_id, rank, sequence_number, arg_min(event_id, (ts_ns, -dur_ns)) AS event_id
    FROM line
    WHERE sequence_number >= 0
    GROUP BY run_id, rank, sequence_number
  ),
  climbed AS (
    -- From each operator up to the call of a module; from one of backward through its forward.
    SELECT op_work.run_id, op_work.rank, op_work.event_id AS op_id, line.event_id, line.parent_id, line.sequence_number,
      op_work.pass = 'backward' AS is_backward
    FROM op_work
    JOIN line USING (run_id, rank, event_id)
    UNION ALL
    SELECT climbed.run_id, climbed.rank, climbed.op_id, line.event_id, line.parent_id, line.sequence_number,
      climbed.is_backward AND recorded.event_id IS NULL AS is_backward
    FROM climbed
    LEFT JOIN recorded
      ON climbed.is_backward
      AND recorded.run_id = climbed.run_id
      AND recorded.rank = climbed.rank
      AND recorded.sequence_number = climbed.sequence_number
    JOIN line
      ON line.run_id = climbed.run_id
      AND line.rank = climbed.rank
      AND line.event_id = coalesce(recorded.event_id, climbed.parent_id)
    ANTI JOIN modules ON modules.run_id = climbed.run_id AND modules.rank = climbed.rank AND modules.event_id = climbed.event_id
  ),
  computed AS (
    SELECT
      op_work.run_id,
      op_work.rank,
      op_work.event_id,
      line.ts_ns,
      line.ts_ns + line.dur_ns AS end_ns,
      line.dur_ns,
      op_work.model_flop,
      op_work.read_bytes + op_work.write_bytes AS bytes,
      op_work.pass,
      coalesce(
        owner.path,
        CASE WHEN op_work.pass = 'optimizer' THEN '(optimizer)' ELSE '(outside any module)' END
      ) AS path
    FROM op_work
    JOIN line USING (run_id, rank, event_id)
    LEFT JOIN (
      SELECT climbed.run_id, climbed.rank, climbed.op_id, any_value(CASE WHEN $by_class THEN modules.class_path ELSE modules.module_path END) AS path
      FROM climbed
      JOIN modules USING (run_id, rank, event_id)
      GROUP BY climbed.run_id, climbed.rank, climbed.op_id
    ) AS owner
      ON owner.run_id = op_work.run_id AND owner.rank = op_work.rank AND owner.op_id = op_work.event_id
  ),
  known AS (
    SELECT run_id, rank, path, string_split(path, ' > ') AS names, starts_with(path, '(') AS apart
    FROM (
      SELECT run_id, rank, path FROM call
      UNION
      SELECT run_id, rank, path FROM placed
      UNION
      SELECT run_id, rank, path FROM computed
    ) AS found
  ),
  level AS MATERIALIZED (
    -- Each path with those of all modules enclosing it, down to the given depth.
    SELECT
      run_id,
      rank,
      path,
      apart,
      unnest(range(1, least(len(names), coalesce($max_depth, len(names))) + 1)) AS depth,
      least(len(names), coalesce($max_depth, len(names))) AS deepest,
      array_to_string(names[1:depth], ' > ') AS module_path,
      len(names) AS own_depth
    FROM known
  ),
  label AS MATERIALIZED (
    SELECT
      run_id,
      rank,
      module_path,
      CASE WHEN NOT any_value(apart) THEN any_value(depth) END AS depth,
      row_number() OVER (ORDER BY run_id, rank, module_path) AS label_id
    FROM level
    GROUP BY run_id, rank, module_path
  ),
  numbered AS MATERIALIZED (
    SELECT
      level.run_id,
      level.rank,
      level.path,
      label.label_id,
      level.depth = level.deepest AS own,
      level.depth = level.own_depth AS exact
    FROM level
    JOIN label USING (run_id, rank, module_path)
  ),
  timed AS (
    SELECT call.run_id, call.rank, call.event_id, call.parent_id, call.ts_ns, call.end_ns, numbered.label_id
    FROM call
    JOIN numbered USING (run_id, rank, path)
    WHERE numbered.exact
  ),
  covered AS (
    -- Host time of direct submodules within each call; a recomputation is not within the call of its path.
    SELECT
      around.run_id,
      around.rank,
      around.event_id,
      sum(least(inside.end_ns, around.end_ns) - inside.ts_ns)::BIGINT AS covered_ns
    FROM timed AS around
    JOIN timed AS inside
      ON inside.run_id = around.run_id
      AND inside.rank = around.rank
      AND inside.parent_id = around.event_id
      AND inside.ts_ns >= around.ts_ns
      AND inside.ts_ns < around.end_ns
    GROUP BY around.run_id, around.rank, around.event_id
  ),
  host AS (
    SELECT
      timed.label_id,
      count(*) AS calls,
      sum(timed.end_ns - timed.ts_ns)::BIGINT AS host_ns,
      sum(timed.end_ns - timed.ts_ns - coalesce(covered.covered_ns, 0))::BIGINT AS host_self_ns
    FROM timed
    LEFT JOIN covered USING (run_id, rank, event_id)
    GROUP BY timed.label_id
  ),
  used AS (
    SELECT
      numbered.label_id,
      numbered.own,
      placed.pass,
      placed.dur_ns,
      placed.model_flop,
      placed.bytes,
      placed.limit_ns,
      placed.limited_ns,
      greatest(placed.end_ns - greatest(placed.ts_ns, coalesce(max(placed.end_ns) OVER earlier, placed.ts_ns)), 0) AS fresh_ns,
      greatest(placed.end_ns - greatest(placed.ts_ns, coalesce(max(placed.end_ns) OVER of_pass, placed.ts_ns)), 0) AS pass_ns,
      greatest(placed.end_ns - greatest(placed.ts_ns, coalesce(max(placed.end_ns) OVER of_self, placed.ts_ns)), 0) AS self_ns
    FROM placed
    JOIN numbered USING (run_id, rank, path)
    WINDOW
      earlier AS (
        PARTITION BY numbered.label_id, placed.device
        ORDER BY placed.ts_ns, placed.event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ),
      of_pass AS (
        PARTITION BY numbered.label_id, placed.device, placed.pass
        ORDER BY placed.ts_ns, placed.event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ),
      of_self AS (
        PARTITION BY numbered.label_id, placed.device, numbered.own
        ORDER BY placed.ts_ns, placed.event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      )
  ),
  device AS (
    SELECT
      label_id,
      count(*) FILTER (own) AS kernel_self_count,
      coalesce(sum(dur_ns) FILTER (own), 0)::BIGINT AS kernel_self_sum_ns,
      coalesce(sum(self_ns) FILTER (own), 0)::BIGINT AS kernel_self_union_ns,
      count(*) AS kernels,
      sum(dur_ns)::BIGINT AS kernel_sum_ns,
      sum(fresh_ns)::BIGINT AS kernel_union_ns,
      coalesce(sum(pass_ns) FILTER (pass = 'forward'), 0)::BIGINT AS forward_ns,
      coalesce(sum(pass_ns) FILTER (pass = 'backward'), 0)::BIGINT AS backward_ns,
      coalesce(sum(pass_ns) FILTER (pass = 'recompute'), 0)::BIGINT AS recompute_ns,
      coalesce(sum(pass_ns) FILTER (pass = 'optimizer'), 0)::BIGINT AS optimizer_ns,
      coalesce(sum(pass_ns) FILTER (pass = 'communication'), 0)::BIGINT AS communication_ns,
      sum(model_flop)::BIGINT AS model_flop,
      sum(bytes)::BIGINT AS bytes,
      -- Ordered, so that rounding does not depend on threads.
      sum(limit_ns ORDER BY limit_ns) / sum(limited_ns) AS roofline
    FROM used
    GROUP BY label_id
  ),
  host_pass AS (
    -- Operators with a rule are not nested.
    SELECT
      numbered.label_id,
      coalesce(sum(computed.dur_ns) FILTER (computed.pass = 'forward'), 0)::BIGINT AS forward_ns,
      coalesce(sum(computed.dur_ns) FILTER (computed.pass = 'backward'), 0)::BIGINT AS backward_ns,
      coalesce(sum(computed.dur_ns) FILTER (computed.pass = 'recompute'), 0)::BIGINT AS recompute_ns,
      coalesce(sum(computed.dur_ns) FILTER (computed.pass = 'optimizer'), 0)::BIGINT AS optimizer_ns,
      sum(computed.model_flop)::BIGINT AS model_flop,
      sum(computed.bytes)::BIGINT AS bytes
    FROM computed
    JOIN numbered USING (run_id, rank, path)
    GROUP BY numbered.label_id
  ),
  everything AS (
    SELECT run_id, rank, sum(dur_ns)::BIGINT AS all_ns
    FROM kernels
    GROUP BY run_id, rank
  )
SELECT
  label.run_id,
  label.rank,
  label.module_path,
  label.depth,
  coalesce(host.calls, 0) AS calls,
  coalesce(host.host_ns, 0) AS host_ns,
  coalesce(host.host_self_ns, 0) AS host_self_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.kernel_self_count, 0) END AS kernel_self_count,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.kernel_self_sum_ns, 0) END AS kernel_self_sum_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.kernel_self_union_ns, 0) END AS kernel_self_union_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.kernels, 0) END AS kernels,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.kernel_sum_ns, 0) END AS kernel_sum_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.kernel_union_ns, 0) END AS kernel_union_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.forward_ns, 0) ELSE host_pass.forward_ns END AS forward_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.backward_ns, 0) ELSE host_pass.backward_ns END AS backward_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.recompute_ns, 0) ELSE host_pass.recompute_ns END AS recompute_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.optimizer_ns, 0) ELSE host_pass.optimizer_ns END AS optimizer_ns,
  CASE WHEN everything.rank IS NOT NULL THEN coalesce(device.communication_ns, 0) END AS communication_ns,
  coalesce(device.model_flop, host_pass.model_flop) AS model_flop,
  coalesce(device.bytes, host_pass.bytes) AS bytes,
  device.roofline,
  coalesce(device.kernel_sum_ns, 0) / nullif(everything.all_ns, 0) AS share
FROM label
LEFT JOIN everything USING (run_id, rank)
LEFT JOIN host USING (label_id)
LEFT JOIN device USING (label_id)
LEFT JOIN host_pass USING (label_id)
