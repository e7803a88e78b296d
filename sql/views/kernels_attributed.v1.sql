-- /// tw
-- kind     = "view"
-- name     = "kernels_attributed"
-- version  = 1
-- summary  = "Operator and modules of each GPU activity; of those that a graph replayed, from the capture of the graph."
-- requires = ["kernels@1", "graph_nodes@1", "kernel_modules@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- event_id      = { type = "BIGINT", unit = "id", doc = "The GPU activity." }
-- activity      = { type = "VARCHAR", doc = "kernel, memcpy, memset or other." }
-- name          = { type = "VARCHAR", null = true, doc = "Full name." }
-- short_name    = { type = "VARCHAR", null = true, doc = "Name without return type, template arguments and function arguments." }
-- kind          = { type = "VARCHAR", doc = "computation, communication, memory (memcpy and memset) or other." }
-- device        = { type = "BIGINT", signed = true, unit = "id", doc = "The device; -1 if unknown." }
-- stream        = { type = "BIGINT", signed = true, unit = "id", doc = "The stream; -1 if unknown." }
-- ts_ns         = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- dur_ns        = { type = "BIGINT", unit = "ns", doc = "Duration." }
-- step          = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step of the launch." }
-- launch_state  = { type = "VARCHAR", doc = "known, before_window or missing, as in `kernels`." }
-- in_graph      = { type = "BOOLEAN", doc = "True if a graph launch with several GPU activities launched it: operators around that call enclose the launch of the graph, not the work." }
-- attributed_by = { type = "VARCHAR", null = true, doc = "launch: operators around its own launch; graph: those of the captured launch (`graph_nodes`, from `tw derive graphs`); annotation: the module that PyTorch's annotation of the graph names, or the operator and module that XLA names. Null if no operator is known." }
-- how           = { type = "VARCHAR", null = true, doc = "Evidence of graph: same_list, aligned or by_order (not certain), as in `graph_nodes`." }
-- place_known   = { type = "BOOLEAN", null = true, doc = "Of graph: true if exactly one captured launch is possible." }
-- op_run        = { type = "VARCHAR", null = true, doc = "Run that op_id refers to: of graph that of the capture." }
-- op_id         = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator; null also if several captured launches are possible." }
-- op_sig        = { type = "VARCHAR", null = true, doc = "Operator with the shapes and types of its inputs." }
-- path_sig      = { type = "VARCHAR", null = true, doc = "Modules and operators enclosing the launch, outermost first." }
-- module_path   = { type = "VARCHAR", null = true, doc = "The nn.Module frames in path_sig." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  launch AS (
    SELECT run_id, rank, runtime_id
    FROM kernels
    WHERE contains(launch_api, 'GraphLaunch')
    GROUP BY run_id, rank, runtime_id
    HAVING count(*) > 1
  ),
  kernel AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      kernels.activity,
      kernels.name,
      kernels.short_name,
      kernels.kind,
      kernels.device,
      kernels.stream,
      kernels.ts_ns,
      kernels.dur_ns,
      kernels.step,
      kernels.launch_state,
      launch.runtime_id IS NOT NULL AS in_graph,
      kernels.op_id,
      kernels.op_sig,
      kernels.path_sig
    FROM kernels
    LEFT JOIN launch USING (run_id, rank, runtime_id)
  ),
  found AS (
    SELECT
      kernel.run_id,
      kernel.rank,
      kernel.event_id,
      kernel.activity,
      kernel.name,
      kernel.short_name,
      kernel.kind,
      kernel.device,
      kernel.stream,
      kernel.ts_ns,
      kernel.dur_ns,
      kernel.step,
      kernel.launch_state,
      kernel.in_graph,
      kernel.in_graph AND coalesce(node.op_name, node.path_sig) IS NOT NULL AS by_graph,
      NOT kernel.in_graph AND kernel.op_id IS NOT NULL AS by_launch,
      kernel.op_id,
      kernel.op_sig,
      kernel.path_sig,
      node.how,
      node.place_known,
      node.capture_run,
      node.capture_op_id,
      coalesce(node.op_sig, node.op_name) AS node_op_sig,
      node.path_sig AS node_path_sig,
      node.module_path AS node_module_path,
      owner.module_path AS annotated_path
    FROM kernel
    LEFT JOIN graph_nodes AS node USING (run_id, rank, event_id)
    LEFT JOIN kernel_modules AS owner
      ON owner.run_id = kernel.run_id
      AND owner.rank = kernel.rank
      AND owner.kernel_id = kernel.event_id
      AND owner.attribution_method = 'annotation'
  )
SELECT
  run_id,
  rank,
  event_id,
  activity,
  name,
  short_name,
  kind,
  device,
  stream,
  ts_ns,
  dur_ns,
  step,
  launch_state,
  in_graph,
  CASE
    WHEN by_graph THEN 'graph'
    WHEN by_launch THEN 'launch'
    WHEN annotated_path IS NOT NULL OR NOT in_graph AND op_sig IS NOT NULL THEN 'annotation'
  END AS attributed_by,
  CASE WHEN by_graph THEN how END AS how,
  CASE WHEN by_graph THEN place_known END AS place_known,
  CASE WHEN by_graph THEN capture_run WHEN by_launch THEN run_id::VARCHAR END AS op_run,
  CASE WHEN by_graph THEN capture_op_id WHEN by_launch THEN op_id END AS op_id,
  CASE WHEN by_graph THEN node_op_sig WHEN NOT in_graph THEN op_sig END AS op_sig,
  CASE WHEN by_graph THEN node_path_sig WHEN NOT in_graph THEN path_sig END AS path_sig,
  CASE
    WHEN by_graph THEN node_module_path
    WHEN by_launch
    THEN
      nullif(
        array_to_string(
          list_filter(string_split(path_sig, ' > '), LAMBDA part: starts_with(part, 'nn.Module: ')),
          ' > '
        ),
        ''
      )
    ELSE annotated_path
  END AS module_path
FROM found
