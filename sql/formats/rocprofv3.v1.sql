-- /// tw
-- kind    = "format"
-- name    = "rocprofv3"
-- version = 1
-- summary = "rocprofv3: kernels, copies, and calls of HIP, HSA, markers and RCCL by one process."
--
-- [tables.kernel_dispatch]
-- optional = [
--   "start_timestamp|Start_Timestamp", "end_timestamp|End_Timestamp", "correlation_id.internal|Correlation_Id",
--   "correlation_id.external", "size", "Kernel_Name VARCHAR", "stream_id.handle|Stream_Id",
--   "dispatch_info.agent_id.handle|Agent_Id", "dispatch_info.queue_id.handle|Queue_Id", "dispatch_info.kernel_id|Kernel_Id",
--   "dispatch_info.workgroup_size.x|Workgroup_Size_X", "dispatch_info.workgroup_size.y|Workgroup_Size_Y",
--   "dispatch_info.workgroup_size.z|Workgroup_Size_Z", "dispatch_info.grid_size.x|Grid_Size_X",
--   "dispatch_info.grid_size.y|Grid_Size_Y", "dispatch_info.grid_size.z|Grid_Size_Z",
--   "dispatch_info.group_segment_size|Group_Segment_Size|LDS_Block_Size|Lds_Block_Size",
-- ]
--
-- [tables.memory_copy]
-- optional = [
--   "start_timestamp|Start_Timestamp", "end_timestamp|End_Timestamp", "correlation_id.internal|Correlation_Id",
--   "correlation_id.external", "size", "stream_id.handle|Stream_Id", "src_agent_id.handle|Source_Agent_Id",
--   "dst_agent_id.handle|Destination_Agent_Id", "Direction VARCHAR", "bytes",
-- ]
--
-- [tables."hip_api, hsa_api, marker_api, rccl_api"]
-- optional = [
--   "start_timestamp|Start_Timestamp", "end_timestamp|End_Timestamp", "correlation_id.internal|Correlation_Id",
--   "correlation_id.external", "size", "Function VARCHAR", "thread_id|Thread_Id",
-- ]
--
-- [tables.gpus]
-- required = ["handle", "number"]
--
-- [tables.kernel_symbols]
-- required = ["kernel_id", "name VARCHAR"]
-- keys     = ["kernel_id"]
--
-- [params]
-- pid = { type = "VARCHAR", default = "0", doc = "The process." }
--
-- [changes]
-- 1 = "First version."
-- ///
-- `gpus` numbers the agents that are GPUs. The other names of columns are those of CSV files.
WITH records AS (
  SELECT 1 AS part, 'kernel' AS category, * EXCLUDE (others), others AS others_1 FROM kernel_dispatch
  UNION ALL BY NAME
  SELECT 2 AS part, 'gpu_memcpy' AS category, * EXCLUDE (others), others AS others_2 FROM memory_copy
  UNION ALL BY NAME
  SELECT 3 AS part, 'cuda_runtime' AS category, * EXCLUDE (others), others AS others_3 FROM hip_api
  UNION ALL BY NAME
  SELECT 4 AS part, 'hsa_api' AS category, * EXCLUDE (others), others AS others_4 FROM hsa_api
  UNION ALL BY NAME
  SELECT 5 AS part, 'user_annotation' AS category, * EXCLUDE (others), others AS others_5 FROM marker_api
  UNION ALL BY NAME
  SELECT 6 AS part, 'library' AS category, * EXCLUDE (others), others AS others_6 FROM rccl_api
),
described AS (
  SELECT
    records.*, start_timestamp AS ts_ns,
    CASE WHEN end_timestamp >= start_timestamp THEN TRY(end_timestamp - start_timestamp) END AS dur_ns,
    "correlation_id.internal" AS correlation, nullif("correlation_id.external", 0) AS external_id,
    CASE WHEN part <= 2 THEN coalesce(agents.number, targets.number, sources.number) END AS gpu,
    coalesce("stream_id.handle", "dispatch_info.queue_id.handle") AS stream,
    CASE WHEN "dispatch_info.workgroup_size.x" > 0 THEN "dispatch_info.workgroup_size.x" END AS block_x,
    CASE WHEN "dispatch_info.workgroup_size.y" > 0 THEN "dispatch_info.workgroup_size.y" END AS block_y,
    CASE WHEN "dispatch_info.workgroup_size.z" > 0 THEN "dispatch_info.workgroup_size.z" END AS block_z,
    -- The grid in the file counts threads.
    CASE WHEN "dispatch_info.grid_size.x" > 0 THEN TRY("dispatch_info.grid_size.x" + block_x - 1) // block_x END AS grid_x,
    CASE WHEN "dispatch_info.grid_size.y" > 0 THEN TRY("dispatch_info.grid_size.y" + block_y - 1) // block_y END AS grid_y,
    CASE WHEN "dispatch_info.grid_size.z" > 0 THEN TRY("dispatch_info.grid_size.z" + block_z - 1) // block_z END AS grid_z,
    coalesce(Direction, Function) AS operation_name,
    CASE
      WHEN part = 1 THEN coalesce(Kernel_Name, symbols.name)
      WHEN part = 2 THEN format('Memcpy {}to{}', if(sources.number IS NULL, 'H', 'D'), if(targets.number IS NULL, 'H', 'D'))
      ELSE operation_name
    END AS name
  FROM records
  LEFT JOIN gpus AS agents ON agents.handle = "dispatch_info.agent_id.handle"
  LEFT JOIN gpus AS sources ON sources.handle = "src_agent_id.handle"
  LEFT JOIN gpus AS targets ON targets.handle = "dst_agent_id.handle"
  LEFT JOIN kernel_symbols_by_kernel_id AS symbols ON symbols.kernel_id = "dispatch_info.kernel_id"
)
SELECT
  part, file_row, 'X' AS ph, category, name, ts_ns, dur_ns, gpu AS device, stream,
  if(part <= 2, gpu::VARCHAR, $pid) AS pid, if(part <= 2, stream, thread_id) AS tid, correlation, external_id, bytes,
  "dispatch_info.group_segment_size" AS shared_memory_bytes, block_x, block_y, block_z, grid_x, grid_y, grid_z,
  {
    'device': gpu, 'stream': if(part <= 2, stream, NULL), 'correlation': correlation, 'bytes': bytes,
    'rocprofv3.direction': if(part = 2, operation_name, NULL), 'External id': external_id,
    'grid': [grid_x, grid_y, grid_z], 'block': [block_x, block_y, block_z],
    'shared memory': "dispatch_info.group_segment_size", 'rocprofv3.queue': "dispatch_info.queue_id.handle"
  } AS arguments, COLUMNS('others_.*')
FROM described
