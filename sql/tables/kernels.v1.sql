-- /// tw
-- kind     = "table"
-- name     = "kernels"
-- version  = 1
-- summary  = "A GPU row with usable times: a kernel, a copy or a set, and what launched it."
-- requires = ["events@1", "launches@1", "kernel_owners@1", "kernel_rules@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id                 = { type = "VARCHAR", doc = "The run." }
-- rank                   = { type = "INTEGER", doc = "The rank." }
-- event_id               = { type = "BIGINT", unit = "id", doc = "The GPU row." }
-- activity               = { type = "VARCHAR", doc = "kernel, memcpy, memset or other." }
-- name                   = { type = "VARCHAR", null = true, doc = "The name, in full." }
-- short_name             = { type = "VARCHAR", null = true, doc = "The name without return type, template and function arguments." }
-- kind                   = { type = "VARCHAR", doc = "computation, communication, memory (copies and sets) or other." }
-- device                 = { type = "BIGINT", signed = true, unit = "id", doc = "The device; -1 where the trace does not say." }
-- stream                 = { type = "BIGINT", signed = true, unit = "id", doc = "The stream; -1 where the trace does not say." }
-- ts_ns                  = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- dur_ns                 = { type = "BIGINT", unit = "ns", doc = "Length." }
-- correlation            = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Id shared with its launch." }
-- external_id            = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Id shared with its operator." }
-- grid_x                 = { type = "BIGINT", null = true, unit = "count", doc = "Blocks in x." }
-- grid_y                 = { type = "BIGINT", null = true, unit = "count", doc = "Blocks in y." }
-- grid_z                 = { type = "BIGINT", null = true, unit = "count", doc = "Blocks in z." }
-- block_x                = { type = "BIGINT", null = true, unit = "count", doc = "Threads of a block in x." }
-- block_y                = { type = "BIGINT", null = true, unit = "count", doc = "Threads of a block in y." }
-- block_z                = { type = "BIGINT", null = true, unit = "count", doc = "Threads of a block in z." }
-- registers_per_thread   = { type = "BIGINT", null = true, unit = "count", doc = "Registers of a thread." }
-- shared_memory_bytes    = { type = "BIGINT", null = true, unit = "bytes", doc = "Shared memory of a block." }
-- occupancy              = { type = "DOUBLE", null = true, unit = "ratio", doc = "The profiler's estimate of achieved occupancy." }
-- blocks_per_sm          = { type = "DOUBLE", null = true, doc = "Blocks over multiprocessors." }
-- warps_per_sm           = { type = "DOUBLE", null = true, doc = "Warps over multiprocessors." }
-- bytes                  = { type = "BIGINT", null = true, unit = "bytes", doc = "Bytes copied or set." }
-- bandwidth_bytes_per_ns = { type = "DOUBLE", null = true, unit = "bytes_per_ns", doc = "The profiler's memory bandwidth." }
-- graph_id               = { type = "BIGINT", null = true, unit = "id", doc = "The graph that it was replayed from." }
-- graph_node_id          = { type = "BIGINT", null = true, unit = "id", doc = "Its node in that graph." }
-- collective             = { type = "VARCHAR", null = true, doc = "The collective's name, from its arguments or those of the operator that launched it." }
-- process_group          = { type = "VARCHAR", null = true, doc = "Name of the process group." }
-- group_size             = { type = "BIGINT", null = true, unit = "count", doc = "Ranks in the process group." }
-- group_ranks            = { type = "VARCHAR", null = true, doc = "Ranks of the process group, as the arguments list them: torch cuts after 30." }
-- dtype                  = { type = "VARCHAR", null = true, doc = "Type of the collective's elements." }
-- in_elements            = { type = "BIGINT", null = true, unit = "count", doc = "Elements that the collective sends." }
-- out_elements           = { type = "BIGINT", null = true, unit = "count", doc = "Elements that the collective receives." }
-- sequence               = { type = "BIGINT", null = true, unit = "id", doc = "Number of the collective in its process group." }
-- runtime_id             = { type = "BIGINT", null = true, unit = "id", doc = "The host call that launched it." }
-- op_id                  = { type = "BIGINT", null = true, unit = "id", doc = "The innermost operator around the launch." }
-- top_op_id              = { type = "BIGINT", null = true, unit = "id", doc = "The outermost operator around the launch." }
-- module_id              = { type = "BIGINT", null = true, unit = "id", doc = "The innermost nn.Module frame around the launch." }
-- annotation_id          = { type = "BIGINT", null = true, unit = "id", doc = "The innermost annotation around the launch on its thread." }
-- step                   = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step of the launch." }
-- pass                   = { type = "VARCHAR", doc = "forward, backward, recompute, optimizer, data or other." }
-- launch_state           = { type = "VARCHAR", doc = "linked; before_window: it starts before the first linked row of its stream; missing." }
-- op_sig                 = { type = "VARCHAR", null = true, doc = "Operator, shapes and types of its inputs: finds the same work under another kernel name." }
-- path_sig               = { type = "VARCHAR", null = true, doc = "Modules and operators around the launch, outermost first." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device_row AS (
    SELECT
      run_id,
      rank,
      event_id,
      category,
      name,
      ts_ns,
      dur_ns,
      correlation,
      external_id,
      bytes,
      step,
      CASE WHEN contains(args, '"Collective name"') THEN args END AS collective_args,
      json_transform(
        args,
        '{"grid": "BIGINT[]", "block": "BIGINT[]", "registers per thread": "BIGINT", "shared memory": "BIGINT",
          "est. achieved occupancy %": "DOUBLE", "blocks per SM": "DOUBLE", "warps per SM": "DOUBLE",
          "memory bandwidth (GB/s)": "DOUBLE", "graph id": "BIGINT", "graph node id": "BIGINT"}'
      ) AS arg
    FROM events
    WHERE event_id IN (SELECT kernel_id FROM launches)
  ),
  ruled AS (
    -- There are few names: what they tell is found once for each.
    SELECT
      named.category,
      named.rule_name,
      regexp_replace(
        regexp_extract(named.rule_name, '^(?:void |static |__global__ )*((?:\(anonymous namespace\)|[^<(])+)', 1),
        '( \[clone [^]]*\]|\.kd| )+$',
        ''
      ) AS short_name,
      arg_min(rule.activity, rule.rule_id) AS activity,
      arg_min(rule.kind, rule.rule_id) AS kind
    FROM (SELECT DISTINCT category, coalesce(name, '') AS rule_name FROM device_row) AS named
    LEFT JOIN kernel_rules AS rule
      ON rule.category = named.category AND regexp_matches(named.rule_name, rule.pattern)
    GROUP BY named.category, named.rule_name
  ),
  sorted AS (
    SELECT
      device_row.run_id,
      device_row.rank,
      device_row.event_id,
      device_row.name,
      CASE WHEN device_row.name IS NOT NULL THEN ruled.short_name END AS short_name,
      device_row.ts_ns,
      device_row.dur_ns,
      device_row.correlation,
      device_row.external_id,
      device_row.bytes,
      device_row.step,
      device_row.collective_args,
      device_row.arg,
      CASE device_row.category
        WHEN 'gpu_memcpy' THEN 'memcpy'
        WHEN 'gpu_memset' THEN 'memset'
        ELSE coalesce(ruled.activity, 'kernel')
      END AS activity,
      CASE
        WHEN device_row.category IN ('gpu_memcpy', 'gpu_memset') THEN 'memory'
        WHEN device_row.collective_args IS NOT NULL THEN 'communication'
        ELSE coalesce(ruled.kind, 'computation')
      END AS kind
    FROM device_row
    JOIN ruled ON ruled.category = device_row.category AND ruled.rule_name = coalesce(device_row.name, '')
  ),
  message AS (
    -- Where the row says nothing of its collective, the operator that launched it may.
    SELECT
      sorted.event_id,
      json_transform(
        coalesce(sorted.collective_args, op.args),
        '{"Collective name": "VARCHAR", "Process Group Name": "VARCHAR", "Process Group Ranks": "VARCHAR",
          "Group size": "BIGINT", "dtype": "VARCHAR", "In msg nelems": "BIGINT", "Out msg nelems": "BIGINT", "Seq": "BIGINT"}'
      ) AS arg
    FROM sorted
    JOIN launches ON launches.kernel_id = sorted.event_id
    LEFT JOIN kernel_owners ON kernel_owners.runtime_id = launches.runtime_id
    LEFT JOIN events AS op ON op.event_id = kernel_owners.collective_id
    WHERE sorted.kind = 'communication'
  )
SELECT
  sorted.run_id,
  sorted.rank,
  sorted.event_id,
  sorted.activity,
  sorted.name,
  sorted.short_name,
  sorted.kind,
  launches.device,
  launches.stream,
  sorted.ts_ns,
  sorted.dur_ns,
  sorted.correlation,
  sorted.external_id,
  sorted.arg.grid[1] AS grid_x,
  sorted.arg.grid[2] AS grid_y,
  sorted.arg.grid[3] AS grid_z,
  sorted.arg.block[1] AS block_x,
  sorted.arg.block[2] AS block_y,
  sorted.arg.block[3] AS block_z,
  sorted.arg."registers per thread" AS registers_per_thread,
  sorted.arg."shared memory" AS shared_memory_bytes,
  sorted.arg."est. achieved occupancy %" / 100 AS occupancy,
  sorted.arg."blocks per SM" AS blocks_per_sm,
  sorted.arg."warps per SM" AS warps_per_sm,
  sorted.bytes,
  sorted.arg."memory bandwidth (GB/s)" AS bandwidth_bytes_per_ns,
  sorted.arg."graph id" AS graph_id,
  sorted.arg."graph node id" AS graph_node_id,
  message.arg."Collective name" AS collective,
  message.arg."Process Group Name" AS process_group,
  message.arg."Group size" AS group_size,
  message.arg."Process Group Ranks" AS group_ranks,
  message.arg.dtype AS dtype,
  message.arg."In msg nelems" AS in_elements,
  message.arg."Out msg nelems" AS out_elements,
  message.arg."Seq" AS sequence,
  launches.runtime_id,
  owner.op_id,
  owner.top_op_id,
  owner.module_id,
  owner.annotation_id,
  sorted.step,
  coalesce(owner.pass, 'other') AS pass,
  launches.launch_state,
  owner.op_sig,
  owner.path_sig
FROM sorted
JOIN launches ON launches.kernel_id = sorted.event_id
LEFT JOIN message ON message.event_id = sorted.event_id
LEFT JOIN kernel_owners AS owner ON owner.runtime_id = launches.runtime_id
