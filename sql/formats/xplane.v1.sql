-- /// tw
-- kind    = "format"
-- name    = "xplane"
-- version = 1
-- summary = "JAX and XLA: the events of one device, and those of the host that belong to it."
--
-- [tables.events]
-- optional = [
--   "plane.name VARCHAR", "plane.device VARCHAR", "plane.ordinal", "line.id", "line.name VARCHAR", "event.name VARCHAR",
--   "event.metadata_name VARCHAR", "event.start_ns", "event.end_ns", "correlation_id", "step_num", "hlo_op VARCHAR",
--   "hlo_category VARCHAR", "kernel_details VARCHAR", "memcpy_details VARCHAR", "memset_details VARCHAR", "flops",
--   "bytes_accessed",
-- ]
-- kept     = ["hlo_op", "hlo_category", "step_num"]
--
-- [tables.elsewhere]
-- optional = ["correlation_id"]
-- keys     = ["correlation_id"]
--
-- [params]
-- pid      = { type = "VARCHAR", default = "0", doc = "The process." }
-- is_first = { type = "BOOLEAN", default = true, doc = "Whether events of the host that launch nothing belong to this device." }
--
-- [changes]
-- 1 = "First version."
-- ///
-- `elsewhere` has the calls that launched activities of other devices, for the first device of the process.
-- Nothing is joined with all events but numbers, which would need memory for the texts of each.
WITH operations AS (
  SELECT
    file_row, "event.start_ns" AS ts_ns, "event.end_ns" AS end_ns, if("line.name" = 'XLA Ops', 'core', 'async') AS place,
    regexp_extract("event.name", '-(start|done)(?:[.]\d+)?$', 1) AS half,
    -- The operation that ends is called in the text of its end.
    coalesce(nullif(regexp_extract("event.metadata_name", '-done\([^%]*%([\w.-]+)', 1), ''), replace("event.name", '-done', '-start')) AS operation,
    row_number() OVER (PARTITION BY place, half, operation ORDER BY "event.start_ns", file_row) AS number,
    -- The time of a loop or call that encloses other operations on its line is theirs.
    place = 'core' AND lead("event.start_ns") OVER by_start < "event.end_ns" AND lead("event.end_ns") OVER by_start <= "event.end_ns" AS encloses
  FROM events WHERE "plane.device" = 'TPU' AND regexp_matches("line.name", '^XLA Ops$|(?i)async.* ops|ops.*async')
  WINDOW by_start AS (PARTITION BY place, "line.id" ORDER BY "event.start_ns", "event.end_ns" DESC, file_row)
),
paired AS (
  SELECT starts.file_row, starts.encloses, ends.end_ns AS done_ns, asynchronous.operation IS NOT NULL AS is_async
  FROM operations AS starts
  LEFT JOIN operations AS ends
    ON starts.place = 'core' AND starts.half = 'start' AND ends.place = 'core' AND ends.half = 'done'
      AND ends.operation = starts.operation AND ends.number = starts.number AND ends.end_ns >= starts.end_ns
  LEFT JOIN (SELECT DISTINCT operation FROM operations WHERE place = 'async') AS asynchronous
    ON starts.place = 'core' AND starts.half = 'start' AND asynchronous.operation = starts.operation
  WHERE starts.encloses OR ends.end_ns IS NOT NULL OR asynchronous.operation IS NOT NULL
),
marked AS (
  SELECT
    events.*, "event.start_ns" AS ts_ns, "event.end_ns" AS end_ns, "plane.device" AS unit, "line.name" AS line,
    "event.name" AS event_name, hlo_op AS op,
    CASE
      WHEN unit IS NULL THEN 'host'
      WHEN unit = 'GPU' AND starts_with(line, 'Stream #') THEN 'stream'
      WHEN unit = 'TPU' AND line = 'XLA Ops' THEN 'core'
      WHEN unit = 'TPU' AND regexp_matches(line, '(?i)async.* ops|ops.*async') THEN 'async'
      ELSE 'notes'
    END AS place,
    place IN ('core', 'async') AND regexp_matches(event_name, '-done(?:[.]\d+)?$') AS is_end,
    lower(coalesce(if(starts_with(hlo_category, 'async'), NULL, hlo_category), op, if(unit = 'TPU', event_name, NULL))) AS hlo,
    regexp_extract(hlo, '^(all-reduce|(?:ragged-)?all-to-all|all-gather|reduce-scatter|collective-permute|collective-broadcast|send|recv)\b', 1) AS message,
    CASE
      WHEN place <> 'host' AND (regexp_matches(event_name, '^(Memcpy|__amd_rocclr_copy)') OR place <> 'stream' AND regexp_matches(hlo, '^(copy-|infeed|outfeed|host send|host recv)')) THEN 'gpu_memcpy'
      WHEN place <> 'host' THEN if(regexp_matches(event_name, '^(Memset|__amd_rocclr_fill)'), 'gpu_memset', 'kernel')
      WHEN starts_with(event_name, '$') THEN 'python_function'
      WHEN regexp_matches(event_name, '^cu[A-Z]') THEN 'cuda_driver'
      WHEN regexp_matches(event_name, '^(cuda|hip)[A-Z]') THEN 'cuda_runtime'
      WHEN op IS NOT NULL THEN 'cpu_op'
      WHEN regexp_matches(event_name, '::|^\w+\(|^end: ') OR regexp_matches(line, '(?i)^(tf_|py_xla|pjrt|xla|host threads)') THEN 'library'
      ELSE 'user_annotation'
    END AS kind,
    CASE kind
      WHEN 'python_function' THEN regexp_replace(event_name[2:], '^(.*):(\d+) (.*)$', '\1(\2): \3')
      ELSE regexp_replace(event_name, '^Memcpy(\w)2(\w)$', 'Memcpy \1to\2')
    END AS title,
    coalesce(
      MAP {'collective-permute': 'send_recv', 'collective-broadcast': 'broadcast', 'ragged-all-to-all': 'all_to_all'}[message],
      replace(nullif(message, ''), '-', '_')
    ) AS collective
  FROM events
  WHERE "plane.device" IS NOT NULL OR step_num IS NOT NULL OR CASE
    -- Every call belongs to the device that it launched something on.
    WHEN correlation_id IS NULL THEN $is_first
    ELSE correlation_id IN (SELECT correlation_id FROM events WHERE "plane.device" IS NOT NULL AND correlation_id IS NOT NULL)
      OR $is_first AND correlation_id NOT IN (SELECT correlation_id FROM elsewhere_by_correlation_id)
  END
),
described AS (
  SELECT
    marked.*, done_ns, string_split(regexp_extract(kernel_details, 'grid:([0-9,]{5,40})', 1), ',') AS grid,
    string_split(regexp_extract(kernel_details, 'block:([0-9,]{5,40})', 1), ',') AS block,
    TRY_CAST(regexp_extract(kernel_details, 'regs:(\d{1,18})', 1) AS BIGINT) AS registers,
    list_sum(regexp_extract_all(kernel_details, '(?:_shared|group_mem):(\d{1,15})', 1)::BIGINT[])::BIGINT AS shared_memory,
    TRY_CAST(regexp_extract(coalesce(memcpy_details, memset_details), 'size:(\d{1,18})', 1) AS BIGINT) AS size,
    regexp_extract(memcpy_details, 'kind_src:(\w)(\w*) kind_dst:(\w)(\w*)', ['a', 'b', 'c', 'd']) AS ends,
    if(ends['a'] <> '', format(' ({}{} -> {}{})', upper(ends['a']), ends['b'], upper(ends['c']), ends['d']), '') AS direction,
    CASE
      WHEN place = 'notes' OR encloses OR is_async THEN 'gpu_user_annotation'
      WHEN place = 'host' AND step_num IS NOT NULL THEN 'user_annotation'
      WHEN place = 'host' THEN if(correlation_id IS NOT NULL AND kind <> 'cuda_driver', 'cuda_runtime', kind)
      WHEN is_end THEN 'cuda_sync'
      ELSE if(memset_details IS NOT NULL, 'gpu_memset', if(memcpy_details IS NOT NULL, 'gpu_memcpy', kind))
    END AS category,
    category IN ('kernel', 'gpu_memcpy', 'gpu_memset') AS is_activity,
    -- A collective or copy that the core starts and awaits runs beside the other operations.
    if(is_activity, "line.id" + if(done_ns IS NULL, 0, 1000000), NULL) AS stream,
    if(is_activity, "plane.ordinal", NULL) AS device, if(is_activity, size, NULL) AS bytes, if(category = 'kernel', collective, NULL) AS message_name
  FROM marked
  LEFT JOIN paired ON paired.file_row = marked.file_row
)
SELECT
  1 AS part, file_row, 'X' AS ph, category,
  CASE category
    WHEN 'user_annotation' THEN concat_ws(' step_num=', title, step_num)
    WHEN 'gpu_memcpy' THEN concat(title, direction)
    ELSE title
  END AS name,
  ts_ns, CASE WHEN coalesce(done_ns, end_ns) >= ts_ns THEN TRY(coalesce(done_ns, end_ns) - ts_ns) END AS dur_ns, device, stream,
  if(place = 'host', $pid, "plane.ordinal"::VARCHAR) AS pid,
  if(place = 'notes', "line.name", coalesce(stream, "line.id")::VARCHAR) AS tid, correlation_id AS correlation, bytes,
  registers AS registers_per_thread, shared_memory AS shared_memory_bytes, message_name IS NOT NULL AS has_collective,
  message_name AS collective,
  TRY_CAST(grid[1] AS BIGINT) AS grid_x, TRY_CAST(grid[2] AS BIGINT) AS grid_y, TRY_CAST(grid[3] AS BIGINT) AS grid_z,
  TRY_CAST(block[1] AS BIGINT) AS block_x, TRY_CAST(block[2] AS BIGINT) AS block_y, TRY_CAST(block[3] AS BIGINT) AS block_z,
  {
    'Collective name': message_name, 'device': device, 'stream': stream, 'correlation': correlation_id, 'bytes': bytes,
    'registers per thread': registers, 'shared memory': shared_memory,
    'grid': [grid_x, grid_y, grid_z], 'block': [block_x, block_y, block_z], 'flops': flops, 'bytes accessed': bytes_accessed,
    'xplane.line': if(place IN ('host', 'core', 'async'), "line.name", NULL), 'xplane.hlo': "event.metadata_name",
    'xplane.details': coalesce(kernel_details, memcpy_details, memset_details)
  } AS arguments, others
FROM described
