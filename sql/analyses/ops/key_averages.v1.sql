-- /// tw
-- kind     = "analysis"
-- name     = "key_averages"
-- version  = 1
-- summary  = "The table of PyTorch's `prof.key_averages()`: calls, self and total time and memory by name."
-- requires = ["categories@1", "events@1", "kernels@1", "memory_events@1", "op_work@1"]
-- optional = ["op_work"]
-- grain    = ["run_id", "rank", "name", "is_annotation", "on_gpu", "shapes", "stack"]
-- per      = "window"
-- order    = ["run_id", "rank", "-self_cpu_ns", "-self_device_ns", "name", "is_annotation", "on_gpu", "shapes", "stack"]
--
-- [params]
-- by_shapes = { type = "BOOLEAN", default = false, doc = "Separate rows by input shapes, as group_by_input_shape does." }
-- by_stack  = { type = "BOOLEAN", default = false, doc = "Separate rows by the Python stack, as group_by_stack_n does: the five innermost frames." }
-- frames    = { type = "BOOLEAN", default = true, doc = "Rows of Python frames, as since PyTorch 2.13. Without them, as before, their own time is that of the event around them." }
--
-- [columns]
-- run_id                   = { type = "VARCHAR", doc = "The run." }
-- rank                     = { type = "INTEGER", doc = "The rank." }
-- name                     = { type = "VARCHAR", doc = "Name of operators, annotations, runtime calls, Python frames or GPU activities; all steps of the profiler are ProfilerStep*." }
-- is_annotation            = { type = "BOOLEAN", doc = "True for annotations (record_function), which PyTorch keeps apart from operators of the same name." }
-- on_gpu                   = { type = "BOOLEAN", doc = "True for GPU activities and annotations on the GPU: PyTorch has a row for each name of them too." }
-- shapes                   = { type = "VARCHAR", null = true, doc = "Input shapes; null without by_shapes or if not recorded." }
-- stack                    = { type = "VARCHAR", null = true, doc = "The five innermost Python frames around the event, innermost first, joined by ` < `; of backward, those of its forward; null without by_stack or if not recorded." }
-- count                    = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Number of calls. The only child of a call of the same name is not counted, as PyTorch removes it." }
-- self_cpu_ns              = { type = "BIGINT", unit = "ns", signed = true, aggregate = "sum", better = "lower", doc = "Sum of their durations on the host outside of children; 0 on the GPU and for work of a process group (gloo:…), which is asynchronous. Negative, as in PyTorch, where children that overlap without nesting take more than the total." }
-- cpu_total_ns             = { type = "BIGINT", unit = "ns", better = "lower", doc = "Sum of their durations on the host; recursive calls count repeatedly." }
-- self_device_ns           = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Sum of the durations of the GPU activities that they launched themselves, or of themselves on the GPU; a sum even where activities overlap. Operators and GPU activities both have them, so that the rows sum to twice the GPU time. Null, like all of the device's columns, if the rank has no GPU activity. The device's columns follow PyTorch's source and have not been compared with its output on a GPU." }
-- device_total_ns          = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "The same with their children." }
-- cpu_memory_bytes         = { type = "BIGINT", unit = "bytes", null = true, signed = true, doc = "Host memory allocated minus freed while they ran, on any thread; null, like all columns of memory, if the trace has no allocations." }
-- self_cpu_memory_bytes    = { type = "BIGINT", unit = "bytes", null = true, signed = true, aggregate = "sum", doc = "The same outside of children." }
-- device_memory_bytes      = { type = "BIGINT", unit = "bytes", null = true, signed = true, doc = "Device memory allocated minus freed while they ran, on any thread." }
-- self_device_memory_bytes = { type = "BIGINT", unit = "bytes", null = true, signed = true, aggregate = "sum", doc = "The same outside of children." }
-- flops                    = { type = "BIGINT", null = true, aggregate = "sum", doc = "Sum of model_flop in `op_work`, counted at the outermost operator with a rule; null if unknown. PyTorch's estimate is not recorded in traces." }
--
-- [changes]
-- 1 = "First version. The host columns equal PyTorch's on recorded CPU runs; those of the device follow its source alone, their only witness: untested on real data."
-- ///
WITH RECURSIVE
  role AS (
    SELECT DISTINCT category, role
    FROM categories
    WHERE role IN ('operator', 'annotation', 'frame', 'runtime', 'device_annotation')
      OR category = 'overhead'
  ),
  listed AS MATERIALIZED (
    SELECT
      events.run_id,
      events.rank,
      events.event_id,
      CASE
        WHEN starts_with(events.name, 'ProfilerStep#') THEN 'ProfilerStep*'
        WHEN contains(events.name, ' step_num=') THEN regexp_replace(events.name, '[0-9]+$', '*')
        ELSE coalesce(events.name, '')
      END AS name,
      role.role IN ('annotation', 'device_annotation') AS is_annotation,
      role.role = 'device_annotation' AS on_gpu,
      role.role = 'frame' AS is_frame,
      role.role = 'annotation'
      AND regexp_full_match(coalesce(events.name, ''), '(gloo|nccl|mpi|ucc|xccl):\w+') AS is_async,
      events.pid,
      events.tid,
      events.ts_ns,
      events.ts_ns + events.dur_ns AS end_ns,
      events.dur_ns,
      CASE WHEN $by_shapes THEN events.shapes::VARCHAR END AS shapes,
      events.sequence_number,
      CASE WHEN $by_stack THEN string_split(nullif(rtrim(events.args ->> '$."Call stack"', ';'), ''), ';') END AS call_stack
    FROM events
    JOIN role USING (category)
    WHERE events.dur_ns IS NOT NULL
      AND events.ts_ns IS NOT NULL
      AND ($frames OR $by_stack OR role.role <> 'frame')
      AND events.ph IN ('X', 'B')
      -- PyTorch leaves these names out.
      AND coalesce(events.name, '') NOT IN (
        'profiler::_record_function_enter',
        'profiler::_record_function_enter_new',
        'profiler::_record_function_exit',
        'aten::is_leaf',
        'aten::output_nr',
        'aten::_version'
      )
    UNION ALL
    SELECT
      run_id,
      rank,
      event_id,
      coalesce(name, '') AS name,
      FALSE AS is_annotation,
      TRUE AS on_gpu,
      FALSE AS is_frame,
      FALSE AS is_async,
      NULL AS pid,
      NULL AS tid,
      ts_ns,
      ts_ns + dur_ns AS end_ns,
      dur_ns,
      NULL AS shapes,
      NULL AS sequence_number,
      NULL AS call_stack
    FROM kernels
  ),
  placed AS MATERIALIZED (
    -- Host events in the order in which PyTorch nests them.
    SELECT
      run_id,
      rank,
      event_id,
      name,
      is_frame,
      sequence_number,
      call_stack,
      ts_ns,
      end_ns,
      dense_rank() OVER (ORDER BY run_id, rank, pid, tid) AS thread_id,
      row_number() OVER (ORDER BY run_id, rank, pid, tid, ts_ns, end_ns DESC, event_id) AS place
    FROM listed
    WHERE NOT on_gpu AND NOT is_async
  ),
  begun AS (
    SELECT thread_id, ts_ns, max(place) AS place
    FROM placed
    GROUP BY thread_id, ts_ns
  ),
  closed AS (
    -- The last event that begins before the end of each, and the latest end up to it.
    SELECT
      placed.place,
      placed.thread_id,
      placed.end_ns,
      greatest(placed.place, begun.place) AS last,
      max(placed.end_ns) OVER (
        PARTITION BY placed.thread_id
        ORDER BY placed.place
        ROWS BETWEEN 1 FOLLOWING AND greatest(begun.place - placed.place, 0) FOLLOWING
      ) AS latest_ns
    FROM placed
    ASOF LEFT JOIN begun
      ON begun.thread_id = placed.thread_id AND begun.ts_ns < placed.end_ns
  ),
  crossed AS (
    -- An event that outlives another closes it: what follows is not within the other one.
    SELECT closed.place, min(placed.place) - 1 AS last
    FROM closed
    JOIN placed
      ON placed.thread_id = closed.thread_id AND placed.place > closed.place AND placed.place <= closed.last
    WHERE closed.latest_ns > closed.end_ns AND placed.end_ns > closed.end_ns
    GROUP BY closed.place
  ),
  ended AS MATERIALIZED (
    SELECT closed.place, coalesce(crossed.last, closed.last) AS last
    FROM closed
    LEFT JOIN crossed USING (place)
  ),
  leveled AS MATERIALIZED (
    -- Level: events begun by then, less those that have ended.
    SELECT
      ended.place,
      ended.last,
      ended.place
      - coalesce(sum(ends.count) OVER (ORDER BY ended.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
        ::BIGINT AS level
    FROM ended
    LEFT JOIN (SELECT last, count(*) AS count FROM ended GROUP BY last) AS ends ON ends.last = ended.place
  ),
  nested AS MATERIALIZED (
    SELECT inside.place, inside.last, around.place AS parent
    FROM leveled AS inside
    ASOF LEFT JOIN leveled AS around
      ON around.level = inside.level - 1 AND around.place < inside.place
  ),
  stack AS MATERIALIZED (
    -- The frames around each event, innermost first, the event around it that is not a frame, and the function of
    -- the autograd engine that it is or is within.
    SELECT place, []::VARCHAR[] AS callers, NULL::BIGINT AS owner, NULL::BIGINT AS backward
    FROM nested
    WHERE $by_stack AND parent IS NULL
    UNION ALL
    SELECT
      nested.place,
      CASE WHEN around.is_frame THEN list_prepend(around.name, stack.callers) ELSE stack.callers END AS callers,
      CASE WHEN around.is_frame THEN stack.owner ELSE stack.place END AS owner,
      coalesce(
        stack.backward,
        CASE WHEN around.name = 'autograd::engine::evaluate_function: ' || own.name THEN nested.place END
      ) AS backward
    FROM stack
    JOIN nested ON nested.parent = stack.place
    JOIN placed AS around ON around.place = stack.place
    JOIN placed AS own ON own.place = nested.place
  ),
  listed_stack AS (
    -- The five innermost frames, without those that PyTorch leaves out.
    SELECT
      stack.place,
      stack.backward,
      placed.run_id,
      placed.rank,
      placed.sequence_number,
      nullif(
        array_to_string(
          list_filter(
            coalesce(placed.call_stack, stack.callers),
            LAMBDA frame: NOT regexp_matches(frame, 'autograd/__init__.*(_make_grads|backward)|torch/tensor.*backward')
          )[1:5],
          ' < '
        ),
        ''
      ) AS text
    FROM stack
    JOIN placed USING (place)
  ),
  forward_stack AS (
    SELECT run_id, rank, sequence_number, arg_min(text, place) AS text
    FROM listed_stack
    WHERE backward IS NULL AND sequence_number IS NOT NULL AND text IS NOT NULL
    GROUP BY run_id, rank, sequence_number
  ),
  stack_text AS (
    -- Backward has the stack of its forward, as in PyTorch.
    SELECT listed_stack.place, CASE WHEN listed_stack.backward IS NULL THEN listed_stack.text ELSE forward_stack.text END AS text
    FROM listed_stack
    LEFT JOIN placed AS engine ON engine.place = listed_stack.backward
    LEFT JOIN forward_stack
      ON forward_stack.run_id = engine.run_id
      AND forward_stack.rank = engine.rank
      AND forward_stack.sequence_number = engine.sequence_number
  ),
  held AS MATERIALIZED (
    -- Without frames, what they hold is held by the event around them.
    SELECT nested.place, nested.last, CASE WHEN $frames OR NOT $by_stack THEN nested.parent ELSE stack.owner END AS parent
    FROM nested
    JOIN placed USING (place)
    LEFT JOIN stack USING (place)
    WHERE $frames OR NOT placed.is_frame
  ),
  only_child AS MATERIALIZED (
    SELECT min(held.place) AS place, held.parent, min(placed.name) AS name
    FROM held
    JOIN placed USING (place)
    WHERE held.parent IS NOT NULL
    GROUP BY held.parent
    HAVING count(*) = 1
  ),
  repeated AS MATERIALIZED (
    -- The only child of an event of the same name.
    SELECT only_child.place, only_child.parent
    FROM only_child
    JOIN placed ON placed.place = only_child.parent AND placed.name = only_child.name
  ),
  keeper AS (
    SELECT place, parent AS keeper
    FROM repeated
    UNION ALL
    SELECT keeper.place, repeated.parent AS keeper
    FROM keeper
    JOIN repeated ON repeated.place = keeper.keeper
  ),
  allocated AS MATERIALIZED (
    -- Bytes allocated and not freed after each time.
    SELECT
      run_id,
      rank,
      ts_ns,
      sum(sum(bytes) FILTER (device_type = 0)) OVER so_far AS cpu_bytes,
      sum(sum(bytes) FILTER (device_type <> 0)) OVER so_far AS device_bytes
    FROM memory_events
    WHERE ts_ns IS NOT NULL
    GROUP BY run_id, rank, ts_ns
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY ts_ns RANGE UNBOUNDED PRECEDING)
  ),
  has_memory AS (
    SELECT DISTINCT run_id, rank
    FROM memory_events
  ),
  host_event AS (
    -- Only of ranks with memory events: the others have nothing to look up.
    SELECT run_id, rank, event_id, ts_ns, end_ns
    FROM listed
    SEMI JOIN has_memory USING (run_id, rank)
    WHERE NOT on_gpu
  ),
  used AS MATERIALIZED (
    SELECT
      host_event.run_id,
      host_event.rank,
      host_event.event_id,
      (coalesce(after.cpu_bytes, 0) - coalesce(before.cpu_bytes, 0))::BIGINT AS cpu_bytes,
      (coalesce(after.device_bytes, 0) - coalesce(before.device_bytes, 0))::BIGINT AS device_bytes
    FROM host_event
    ASOF LEFT JOIN allocated AS before
      ON before.run_id = host_event.run_id AND before.rank = host_event.rank AND before.ts_ns < host_event.ts_ns
    ASOF LEFT JOIN allocated AS after
      ON after.run_id = host_event.run_id AND after.rank = host_event.rank AND after.ts_ns <= host_event.end_ns
  ),
  launched AS (
    SELECT run_id, rank, op_id, sum(dur_ns)::BIGINT AS device_ns
    FROM kernels
    WHERE op_id IS NOT NULL
    GROUP BY run_id, rank, op_id
  ),
  spent AS MATERIALIZED (
    SELECT
      placed.place,
      placed.run_id,
      placed.rank,
      placed.event_id,
      placed.end_ns - placed.ts_ns AS cpu_ns,
      coalesce(launched.device_ns, 0) AS device_ns,
      sum(coalesce(launched.device_ns, 0)) OVER (ORDER BY placed.place ROWS UNBOUNDED PRECEDING)::BIGINT AS so_far_ns,
      coalesce(used.cpu_bytes, 0) AS cpu_bytes,
      coalesce(used.device_bytes, 0) AS device_bytes
    FROM placed
    LEFT JOIN used USING (run_id, rank, event_id)
    LEFT JOIN launched
      ON launched.run_id = placed.run_id AND launched.rank = placed.rank AND launched.op_id = placed.event_id
  ),
  inner_sum AS (
    SELECT
      held.parent,
      sum(spent.cpu_ns)::BIGINT AS cpu_ns,
      sum(spent.cpu_bytes)::BIGINT AS cpu_bytes,
      sum(spent.device_bytes)::BIGINT AS device_bytes
    FROM held
    JOIN spent USING (place)
    WHERE held.parent IS NOT NULL
    GROUP BY held.parent
  ),
  own AS (
    -- Self values, at the event that is kept for them.
    SELECT
      coalesce(last_keeper.keeper, held.place) AS keeper,
      sum(spent.cpu_ns - coalesce(inner_sum.cpu_ns, 0))::BIGINT AS self_cpu_ns,
      sum(spent.device_ns)::BIGINT AS self_device_ns,
      sum(spent.cpu_bytes - coalesce(inner_sum.cpu_bytes, 0))::BIGINT AS self_cpu_bytes,
      sum(spent.device_bytes - coalesce(inner_sum.device_bytes, 0))::BIGINT AS self_device_bytes
    FROM held
    JOIN spent USING (place)
    LEFT JOIN inner_sum ON inner_sum.parent = held.place
    LEFT JOIN (SELECT keeper.place, min(keeper.keeper) AS keeper FROM keeper GROUP BY keeper.place) AS last_keeper
      ON last_keeper.place = held.place
    GROUP BY coalesce(last_keeper.keeper, held.place)
  ),
  kept AS (
    SELECT
      spent.run_id,
      spent.rank,
      spent.event_id,
      spent.cpu_ns,
      own.self_cpu_ns,
      up_to.so_far_ns - spent.so_far_ns + spent.device_ns AS device_ns,
      own.self_device_ns,
      spent.cpu_bytes,
      own.self_cpu_bytes,
      spent.device_bytes,
      own.self_device_bytes,
      stack_text.text AS stack
    FROM own
    JOIN spent ON spent.place = own.keeper
    JOIN held ON held.place = own.keeper
    JOIN spent AS up_to ON up_to.place = held.last
    LEFT JOIN stack_text ON stack_text.place = own.keeper
  ),
  valued AS (
    SELECT
      listed.run_id,
      listed.rank,
      listed.name,
      listed.is_annotation,
      listed.on_gpu,
      listed.shapes,
      CASE WHEN listed.is_async THEN array_to_string(listed.call_stack[1:5], ' < ') ELSE kept.stack END AS stack,
      CASE WHEN listed.on_gpu THEN 0 ELSE listed.dur_ns END AS cpu_ns,
      coalesce(kept.self_cpu_ns, 0) AS self_cpu_ns,
      CASE WHEN listed.on_gpu THEN listed.dur_ns ELSE coalesce(kept.device_ns, 0) END AS device_ns,
      CASE WHEN listed.on_gpu THEN listed.dur_ns ELSE coalesce(kept.self_device_ns, 0) END AS self_device_ns,
      coalesce(used.cpu_bytes, 0) AS cpu_bytes,
      coalesce(kept.self_cpu_bytes, 0) AS self_cpu_bytes,
      coalesce(used.device_bytes, 0) AS device_bytes,
      coalesce(kept.self_device_bytes, 0) AS self_device_bytes,
      op_work.model_flop
    FROM listed
    LEFT JOIN kept USING (run_id, rank, event_id)
    LEFT JOIN used USING (run_id, rank, event_id)
    LEFT JOIN op_work USING (run_id, rank, event_id)
    WHERE listed.on_gpu OR listed.is_async OR kept.event_id IS NOT NULL
    UNION ALL
    -- Allocations and frees outside of all events.
    SELECT
      outside.run_id,
      outside.rank,
      '[memory]' AS name,
      FALSE AS is_annotation,
      FALSE AS on_gpu,
      NULL AS shapes,
      NULL AS stack,
      0 AS cpu_ns,
      0 AS self_cpu_ns,
      0 AS device_ns,
      0 AS self_device_ns,
      CASE WHEN outside.device_type = 0 THEN outside.bytes ELSE 0 END AS cpu_bytes,
      CASE WHEN outside.device_type = 0 THEN outside.bytes ELSE 0 END AS self_cpu_bytes,
      CASE WHEN outside.device_type <> 0 THEN outside.bytes ELSE 0 END AS device_bytes,
      CASE WHEN outside.device_type <> 0 THEN outside.bytes ELSE 0 END AS self_device_bytes,
      NULL AS model_flop
    FROM memory_events AS outside
    ASOF LEFT JOIN (
      SELECT run_id, rank, ts_ns, max(max(end_ns)) OVER so_far AS reach_ns
      FROM host_event
      GROUP BY run_id, rank, ts_ns
      WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY ts_ns RANGE UNBOUNDED PRECEDING)
    ) AS covered
      ON covered.run_id = outside.run_id AND covered.rank = outside.rank AND covered.ts_ns <= outside.ts_ns
    WHERE outside.ts_ns IS NOT NULL AND coalesce(covered.reach_ns < outside.ts_ns, TRUE)
  ),
  has_device AS (
    SELECT DISTINCT run_id, rank
    FROM kernels
  )
SELECT
  valued.run_id,
  valued.rank,
  valued.name,
  valued.is_annotation,
  valued.on_gpu,
  valued.shapes,
  valued.stack,
  count(*) AS count,
  sum(valued.self_cpu_ns)::BIGINT AS self_cpu_ns,
  sum(valued.cpu_ns)::BIGINT AS cpu_total_ns,
  CASE WHEN any_value(has_device.rank) IS NOT NULL THEN sum(valued.self_device_ns)::BIGINT END AS self_device_ns,
  CASE WHEN any_value(has_device.rank) IS NOT NULL THEN sum(valued.device_ns)::BIGINT END AS device_total_ns,
  CASE WHEN any_value(has_memory.rank) IS NOT NULL THEN sum(valued.cpu_bytes)::BIGINT END AS cpu_memory_bytes,
  CASE WHEN any_value(has_memory.rank) IS NOT NULL THEN sum(valued.self_cpu_bytes)::BIGINT END AS self_cpu_memory_bytes,
  CASE WHEN any_value(has_memory.rank) IS NOT NULL THEN sum(valued.device_bytes)::BIGINT END AS device_memory_bytes,
  CASE
    WHEN any_value(has_memory.rank) IS NOT NULL THEN sum(valued.self_device_bytes)::BIGINT
  END AS self_device_memory_bytes,
  sum(valued.model_flop)::BIGINT AS flops
FROM valued
LEFT JOIN has_device USING (run_id, rank)
LEFT JOIN has_memory USING (run_id, rank)
GROUP BY ALL
