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
WITH marked AS (
  SELECT
    *, "event.name" AS name, "event.start_ns" AS ts_ns, "event.end_ns" AS end_ns,
    CASE
      WHEN "plane.device" = 'GPU' AND starts_with("line.name", 'Stream #') THEN 'stream'
      WHEN "plane.device" = 'TPU' AND "line.name" = 'XLA Ops' THEN 'core'
      WHEN "plane.device" = 'TPU' AND regexp_matches("line.name", '(?i)async.* ops|ops.*async') THEN 'async'
      ELSE if("plane.device" IS NULL, 'host', 'notes')
    END AS place,
    if(place IN ('core', 'async'), regexp_extract(name, '-(start|done)(?:[.]\d+)?$', 1), '') AS half,
    -- The operation that ends is called in the text of its end.
    coalesce(
      nullif(regexp_extract("event.metadata_name", '-done\([^%]*%([\w.-]+)', 1), ''), replace(name, '-done', '-start')
    ) AS operation,
    lower(coalesce(if(starts_with(hlo_category, 'async'), NULL, hlo_category), hlo_op, if("plane.device" = 'TPU', name, NULL))) AS hlo,
    regexp_extract(hlo, '^(all-reduce|(?:ragged-)?all-to-all|all-gather|reduce-scatter|collective-permute|collective-broadcast|send|recv)\b', 1) AS message,
    -- Every call belongs to the device that it launched something on.
    "plane.device" IS NOT NULL OR step_num IS NOT NULL OR CASE
      WHEN correlation_id IS NULL THEN $is_first
      ELSE bool_or("plane.device" IS NOT NULL) OVER (PARTITION BY correlation_id)
        OR $is_first AND correlation_id NOT IN (SELECT correlation_id FROM elsewhere_by_correlation_id)
    END AS is_own
  FROM events
),
ranked AS (
  SELECT
    *, row_number() OVER (PARTITION BY place, half, operation ORDER BY ts_ns, file_row) AS number,
    -- A loop or a call that encloses other operations on its line is no device time of its own.
    coalesce(place = 'core' AND lead(ts_ns) OVER by_start < end_ns AND lead(end_ns) OVER by_start <= end_ns, false) AS encloses
  FROM marked WHERE is_own
  WINDOW by_start AS (PARTITION BY place, "line.id" ORDER BY ts_ns, end_ns DESC, file_row)
),
paired AS (
  SELECT ranked.*, ends.end_ns AS done_ns, async.operation IS NOT NULL AS is_async
  FROM ranked
  LEFT JOIN (SELECT operation, number, end_ns FROM ranked WHERE place = 'core' AND half = 'done') AS ends
    ON place = 'core' AND half = 'start' AND ends.operation = ranked.operation AND ends.number = ranked.number
      AND ends.end_ns >= ranked.end_ns
  LEFT JOIN (SELECT DISTINCT operation FROM ranked WHERE place = 'async') AS async
    ON place = 'core' AND half = 'start' AND async.operation = ranked.operation
),
described AS (
  SELECT
    *,
    CASE
      WHEN place = 'notes' OR encloses OR is_async THEN 'gpu_user_annotation'
      WHEN place <> 'host' AND half = 'done' THEN 'cuda_sync'
      WHEN place <> 'host' AND (memset_details IS NOT NULL OR regexp_matches(name, '^Memset')) THEN 'gpu_memset'
      WHEN place <> 'host' AND (
        memcpy_details IS NOT NULL OR regexp_matches(name, '^Memcpy')
        OR message = '' AND place <> 'stream' AND regexp_matches(hlo, '^(copy-|infeed|outfeed|host send|host recv)')
      ) THEN 'gpu_memcpy'
      WHEN place <> 'host' THEN 'kernel'
      WHEN step_num IS NOT NULL THEN 'user_annotation'
      WHEN starts_with(name, '$') THEN 'python_function'
      WHEN correlation_id IS NOT NULL OR regexp_matches(name, '^(cuda|hip)[A-Z]') THEN if(regexp_matches(name, '^cu[A-Z]'), 'cuda_driver', 'cuda_runtime')
      WHEN hlo_op IS NOT NULL THEN 'cpu_op'
      WHEN regexp_matches(name, '::|^\w+\(|^end: ') OR regexp_matches("line.name", '(?i)^(tf_|py_xla|pjrt|xla|host threads)') THEN 'library'
      ELSE 'user_annotation'
    END AS category,
    category IN ('kernel', 'gpu_memcpy', 'gpu_memset') AS is_activity,
    if(is_activity, "plane.ordinal", NULL) AS device,
    -- A collective or copy that the core starts and awaits runs beside the other operations.
    if(is_activity, "line.id" + if(done_ns IS NULL, 0, 1000000), NULL) AS stream,
    if(is_activity, TRY_CAST(regexp_extract(coalesce(memcpy_details, memset_details), 'size:(\d{1,18})', 1) AS BIGINT), NULL) AS bytes,
    string_split(regexp_extract(kernel_details, 'grid:([0-9,]{5,40})', 1), ',') AS grid,
    string_split(regexp_extract(kernel_details, 'block:([0-9,]{5,40})', 1), ',') AS block,
    TRY_CAST(regexp_extract(kernel_details, 'regs:(\d{1,18})', 1) AS BIGINT) AS registers_per_thread,
    list_sum([
      TRY_CAST(regexp_extract(kernel_details, key || ':(\d{1,18})', 1) AS BIGINT)
      FOR key IN ['static_shared', 'dynamic_shared', 'group_mem']
    ])::BIGINT AS shared_memory_bytes,
    CASE WHEN category = 'kernel' AND message <> '' THEN CASE
      WHEN message = 'collective-permute' THEN 'send_recv'
      WHEN message = 'collective-broadcast' THEN 'broadcast'
      ELSE replace(replace(message, 'ragged-', ''), '-', '_')
    END END AS collective,
    regexp_extract(memcpy_details, 'kind_src:(\w+) kind_dst:(\w+)', ['source', 'target']) AS memory
  FROM paired
)
SELECT
  1 AS part, file_row, 'X' AS ph, category,
  CASE category
    WHEN 'python_function' THEN regexp_replace(name[2:], '^(.*):(\d+) (.*)$', '\1(\2): \3')
    WHEN 'user_annotation' THEN concat_ws(' ', name, 'step_num=' || step_num)
    WHEN 'gpu_memcpy' THEN regexp_replace(name, '^Memcpy(\w)2(\w)$', 'Memcpy \1to\2')
      || if(memory.source <> '', format(' ({} -> {})', upper(memory.source[1]) || memory.source[2:], upper(memory.target[1]) || memory.target[2:]), '')
    ELSE name
  END AS name,
  ts_ns, CASE WHEN coalesce(done_ns, end_ns) >= ts_ns THEN TRY(coalesce(done_ns, end_ns) - ts_ns) END AS dur_ns, device, stream,
  if(place = 'host', $pid, "plane.ordinal"::VARCHAR) AS pid,
  if(place = 'notes', "line.name", coalesce(stream, "line.id")::VARCHAR) AS tid, correlation_id AS correlation, bytes,
  registers_per_thread, shared_memory_bytes, collective IS NOT NULL AS has_collective, collective,
  TRY_CAST(grid[1] AS BIGINT) AS grid_x, TRY_CAST(grid[2] AS BIGINT) AS grid_y, TRY_CAST(grid[3] AS BIGINT) AS grid_z,
  TRY_CAST(block[1] AS BIGINT) AS block_x, TRY_CAST(block[2] AS BIGINT) AS block_y, TRY_CAST(block[3] AS BIGINT) AS block_z,
  {
    'Collective name': collective, 'device': device, 'stream': stream, 'correlation': correlation_id, 'bytes': bytes,
    'registers per thread': registers_per_thread, 'shared memory': shared_memory_bytes,
    'grid': [grid_x, grid_y, grid_z], 'block': [block_x, block_y, block_z], 'flops': flops, 'bytes accessed': bytes_accessed,
    'xplane.line': if(place IN ('host', 'core', 'async'), "line.name", NULL), 'xplane.hlo': "event.metadata_name",
    'xplane.details': coalesce(kernel_details, memcpy_details, memset_details)
  } AS arguments, others
FROM described
