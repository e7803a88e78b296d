-- /// tw
-- kind    = "format"
-- name    = "rocpd"
-- version = 1
-- summary = "Databases of rocprofv3 (rocpd): the GPU activities, calls and counters of one process of one GUID."
--
-- [tables.rocpd_kernel_dispatch]
-- optional = [
--   "id", "guid VARCHAR", "nid", "pid", "tid", "track_id", "start_id", "end_id", "start", "end", "event_id",
--   "agent_id", "kernel_id", "queue_id", "stream_id", "group_segment_size", "name_id", "region_name_id",
--   "grid_size_x", "grid_size_y", "grid_size_z", "workgroup_size_x", "workgroup_size_y", "workgroup_size_z",
-- ]
-- kept = ["queue_id", "stream_id"]
--
-- [tables.rocpd_memory_copy]
-- optional = [
--   "id", "guid VARCHAR", "nid", "pid", "tid", "track_id", "start_id", "end_id", "start", "end", "event_id",
--   "src_agent_id", "dst_agent_id", "queue_id", "stream_id", "size", "name_id", "region_name_id",
-- ]
-- kept = ["queue_id", "stream_id"]
--
-- [tables.rocpd_region]
-- optional = [
--   "id", "guid VARCHAR", "nid", "pid", "tid", "track_id", "start_id", "end_id", "start", "end", "event_id",
--   "name_id", "region_name_id",
-- ]
--
-- [tables.rocpd_pmc_event]
-- optional = ["event_id", "pmc_id", "value DOUBLE"]
--
-- [tables.rocpd_track]
-- optional = ["id", "nid", "pid", "tid"]
-- keys     = ["id"]
--
-- [tables.rocpd_timestamp]
-- optional = ["id", "value"]
-- keys     = ["id"]
--
-- [tables.rocpd_info_process]
-- optional = ["id", "pid"]
-- keys     = ["id"]
--
-- [tables.rocpd_info_thread]
-- optional = ["id", "tid"]
-- keys     = ["id"]
--
-- [tables.rocpd_event]
-- optional = ["id", "category_id", "stack_id", "correlation_id", "extdata VARCHAR"]
-- keys     = ["id"]
--
-- [tables.rocpd_string]
-- optional = ["id", "string VARCHAR"]
-- keys     = ["id"]
--
-- [tables.rocpd_info_agent]
-- optional = ["id", "type VARCHAR", "type_index"]
-- keys     = ["id"]
--
-- [tables.rocpd_info_kernel_symbol]
-- optional = ["id", "display_name VARCHAR", "kernel_name VARCHAR"]
-- keys     = ["id"]
--
-- [tables.rocpd_info_pmc]
-- optional = ["id", "name VARCHAR"]
-- keys     = ["id"]
--
-- [params]
-- pid = { type = "BIGINT", doc = "The process; null for all." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH timed AS (
  SELECT 1 AS part, * EXCLUDE (others), others AS others_of_kernel FROM rocpd_kernel_dispatch
  UNION ALL BY NAME
  SELECT 2 AS part, * EXCLUDE (others), others AS others_of_copy FROM rocpd_memory_copy
  UNION ALL BY NAME
  SELECT 3 AS part, * EXCLUDE (others), others AS others_of_region FROM rocpd_region
),
located AS (  -- in one of two layouts, rows refer to tracks and timestamps
  SELECT
    timed.* EXCLUDE (nid, pid, tid, start, "end"), coalesce(tracks.nid, timed.nid) AS node,
    coalesce(tracks.pid, timed.pid) AS process_key, coalesce(tracks.tid, timed.tid) AS thread_key,
    coalesce(starts.value, timed.start) AS start, coalesce(ends.value, timed.end) AS "end"
  FROM timed
  LEFT JOIN rocpd_track_by_id AS tracks ON tracks.id = timed.track_id
  LEFT JOIN rocpd_timestamp_by_id AS starts ON starts.id = timed.start_id
  LEFT JOIN rocpd_timestamp_by_id AS ends ON ends.id = timed.end_id
),
described AS (
  SELECT
    located.*, processes.pid AS process_number, threads.tid AS thread_number,
    categories.string AS kind, events.stack_id, events.correlation_id, events.extdata
  FROM located
  LEFT JOIN rocpd_info_process_by_id AS processes ON processes.id = located.process_key
  LEFT JOIN rocpd_info_thread_by_id AS threads ON threads.id = located.thread_key
  LEFT JOIN rocpd_event_by_id AS events ON events.id = located.event_id
  LEFT JOIN rocpd_string_by_id AS categories ON categories.id = events.category_id
),
keys AS (  -- of each table: whether it has the numbers of processes and threads themselves, no ids
  SELECT
    part, bool_or(process_key IS NOT NULL AND process_number IS NULL) AS has_processes,
    bool_or(thread_key IS NOT NULL AND thread_number IS NULL) AS has_threads
  FROM described GROUP BY part
),
of_process AS (
  SELECT
    described.*, CASE WHEN has_processes THEN process_key ELSE process_number END AS process,
    CASE WHEN has_threads THEN thread_key ELSE thread_number END AS thread,
    CASE WHEN "end" >= start THEN TRY("end" - start) END AS dur_ns, coalesce(stream_id, queue_id) AS stream,
    CASE WHEN correlation_id > 0 THEN correlation_id END AS external_id
  FROM described JOIN keys USING (part)
  WHERE process = coalesce($pid, process)
),
kernels AS (
  SELECT
    of_process.*, agents.type_index AS device,
    CASE WHEN workgroup_size_x > 0 THEN workgroup_size_x END AS block_x,
    CASE WHEN workgroup_size_y > 0 THEN workgroup_size_y END AS block_y,
    CASE WHEN workgroup_size_z > 0 THEN workgroup_size_z END AS block_z,
    -- The grid in the file counts threads.
    CASE WHEN grid_size_x > 0 THEN TRY(grid_size_x + block_x - 1) // block_x END AS grid_x,
    CASE WHEN grid_size_y > 0 THEN TRY(grid_size_y + block_y - 1) // block_y END AS grid_y,
    CASE WHEN grid_size_z > 0 THEN TRY(grid_size_z + block_z - 1) // block_z END AS grid_z,
    coalesce(symbols.display_name, symbols.kernel_name, 'kernel') AS name
  FROM of_process
  LEFT JOIN rocpd_info_agent_by_id AS agents ON agents.id = of_process.agent_id
  LEFT JOIN rocpd_info_kernel_symbol_by_id AS symbols ON symbols.id = of_process.kernel_id
  WHERE part = 1
)
SELECT
  part, file_row, 'X' AS ph, 'kernel' AS category, name, start AS ts_ns, dur_ns, device, stream,
  device AS pid, stream AS tid, CASE WHEN stack_id > 0 THEN stack_id END AS correlation, external_id,
  grid_x, grid_y, grid_z, block_x, block_y, block_z, group_segment_size AS shared_memory_bytes,
  {
    'device': device, 'stream': stream, 'correlation': stack_id,
    'grid': [grid_x, grid_y, grid_z],
    'block': [block_x, block_y, block_z], 'shared memory': group_segment_size
  } AS arguments, others_of_kernel, node, process, device AS process_device
FROM kernels
UNION ALL BY NAME
SELECT
  part, file_row, 'X' AS ph, 'gpu_memcpy' AS category,
  CASE
    WHEN sources.type IS NULL OR targets.type IS NULL THEN 'Memcpy Unknown'
    ELSE 'Memcpy ' || if(sources.type = 'GPU', 'D', 'H') || 'to' || if(targets.type = 'GPU', 'D', 'H')
  END AS name,
  start AS ts_ns, dur_ns, if(targets.type = 'GPU', targets.type_index, sources.type_index) AS device, stream,
  device AS pid, stream AS tid, CASE WHEN stack_id > 0 THEN stack_id END AS correlation, external_id,
  size AS bytes,
  {'device': device, 'stream': stream, 'correlation': stack_id, 'bytes': size} AS arguments_of_copy,
  others_of_copy, node, process, targets.type_index AS process_device
FROM of_process
LEFT JOIN rocpd_info_agent_by_id AS sources ON sources.id = of_process.src_agent_id
LEFT JOIN rocpd_info_agent_by_id AS targets ON targets.id = of_process.dst_agent_id
WHERE part = 2
UNION ALL BY NAME
SELECT
  part, file_row, 'X' AS ph,
  CASE
    WHEN starts_with(kind, 'HIP') THEN 'cuda_runtime' WHEN starts_with(kind, 'HSA') THEN 'hsa_api'
    WHEN starts_with(kind, 'MARKER') OR starts_with(kind, 'ROCTX') THEN 'user_annotation'
    WHEN starts_with(kind, 'RCCL') THEN 'library' ELSE 'overhead'
  END AS category,
  CASE  -- the text of an annotation may be a message beside its name
    WHEN category = 'user_annotation' AND json_valid(extdata) AND json_type(extdata, '$.message') = 'VARCHAR'
      THEN coalesce(nullif(extdata ->> '$.message', ''), names.string)
    ELSE names.string
  END AS name,
  start AS ts_ns, dur_ns, process AS pid, thread AS tid,
  CASE WHEN category = 'cuda_runtime' AND stack_id > 0 THEN stack_id END AS correlation, external_id,
  {'correlation': CASE WHEN category = 'cuda_runtime' THEN stack_id END} AS arguments_of_region,
  others_of_region
FROM of_process
LEFT JOIN rocpd_string_by_id AS names ON names.id = of_process.name_id
WHERE part = 3
UNION ALL BY NAME
SELECT
  4 AS part, samples.file_row, 'C' AS ph, counters.name, kernels.start AS ts_ns, kernels.device,
  kernels.device AS pid,
  '{' || to_json(coalesce(nullif(counters.name, ''), 'value')) || ':' || coalesce(to_json(value), 'null') || '}' AS args
FROM rocpd_pmc_event AS samples
JOIN (FROM kernels QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY file_row) = 1) AS kernels
  ON kernels.event_id = samples.event_id
LEFT JOIN rocpd_info_pmc_by_id AS counters ON counters.id = samples.pmc_id
WHERE kernels.start IS NOT NULL
