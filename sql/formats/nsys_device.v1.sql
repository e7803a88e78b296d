-- /// tw
-- kind    = "format"
-- name    = "nsys_device"
-- version = 1
-- summary = "Nsight Systems: kernels, copies, sets of memory, graph replays and synchronization of one process."
--
-- [tables.CUPTI_ACTIVITY_KIND_KERNEL]
-- optional = [
--   "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid",
--   "demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
--   "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphId", "graphNodeId",
-- ]
--
-- [tables.CUPTI_ACTIVITY_KIND_MEMCPY]
-- optional = [
--   "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid",
--   "bytes", "copyKind", "srcKind", "dstKind", "graphId", "graphNodeId",
-- ]
--
-- [tables.CUPTI_ACTIVITY_KIND_MEMSET]
-- optional = [
--   "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid",
--   "bytes", "memKind", "graphId", "graphNodeId",
-- ]
--
-- [tables.CUPTI_ACTIVITY_KIND_GRAPH_TRACE]
-- optional = [
--   "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphId", "graphNodeId",
-- ]
--
-- [tables.CUPTI_ACTIVITY_KIND_SYNCHRONIZATION]
-- optional = [
--   "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid",
--   "syncType|deprecatedSyncType", "eventId",
-- ]
--
-- [tables.StringIds]
-- optional = ["id", "value VARCHAR"]
-- keys     = ["id"]
--
-- [params]
-- pid     = { type = "BIGINT", default = 0, doc = "The process." }
-- base_ns = { type = "BIGINT", default = 0, unit = "ts", doc = "What is added to the times in the file." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH copy_kinds(kind, label) AS (
  VALUES
    (0, 'Unknown'), (1, 'HtoD'), (2, 'DtoH'), (3, 'HtoA'), (4, 'AtoH'), (5, 'AtoA'), (6, 'AtoD'), (7, 'DtoA'),
    (8, 'DtoD'), (9, 'HtoH'), (10, 'PtoP'), (11, 'Managed HtoD'), (12, 'Managed DtoH'), (13, 'Managed DtoD')
),
memory_kinds(kind, label) AS (
  VALUES
    (0, 'Pageable'), (1, 'Pinned'), (2, 'Device'), (3, 'Array'), (4, 'Managed'), (5, 'Device Static'),
    (6, 'Managed Static'), (7, 'Unknown')
),
sync_kinds(kind, label) AS (
  VALUES (1, 'Event Sync'), (2, 'Stream Wait Event'), (3, 'Stream Sync'), (4, 'Context Sync')
),
kernels AS (
  SELECT
    1 AS part, 'kernel' AS category, kernels.* EXCLUDE (others), kernels.others AS others_of_kernel,
    coalesce(demangled.value, short.value, mangled.value) AS name,
    TRY(staticSharedMemory + dynamicSharedMemory) AS shared_memory_bytes
  FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernels
  LEFT JOIN StringIds_by_id AS demangled ON demangled.id = demangledName
  LEFT JOIN StringIds_by_id AS short ON short.id = shortName
  LEFT JOIN StringIds_by_id AS mangled ON mangled.id = mangledName
),
of_known_kinds AS NOT MATERIALIZED (
  SELECT
    2 AS part, 'gpu_memcpy' AS category, copies.* EXCLUDE (others), copies.others AS others_of_copy,
    format(
      'Memcpy {} ({} -> {})', if(copyKind IS NULL, NULL, coalesce(copy_kinds.label, 'Unknown')),
      if(srcKind IS NULL, NULL, coalesce(sources.label, 'Unknown')),
      if(dstKind IS NULL, NULL, coalesce(targets.label, 'Unknown'))
    ) AS name,
    [
      CASE WHEN copy_kinds.label IS NULL THEN 'MEMCPY.copyKind = ' || copyKind END,
      CASE WHEN sources.label IS NULL THEN 'MEMCPY.srcKind = ' || srcKind END,
      CASE WHEN targets.label IS NULL THEN 'MEMCPY.dstKind = ' || dstKind END
    ] AS unknown_kinds
  FROM CUPTI_ACTIVITY_KIND_MEMCPY AS copies
  LEFT JOIN copy_kinds ON copy_kinds.kind = copyKind
  LEFT JOIN memory_kinds AS sources ON sources.kind = srcKind
  LEFT JOIN memory_kinds AS targets ON targets.kind = dstKind
  UNION ALL BY NAME
  SELECT
    3 AS part, 'gpu_memset' AS category, sets.* EXCLUDE (others), sets.others AS others_of_set,
    if(memKind IS NULL, NULL, format('Memset ({})', coalesce(label, 'Unknown'))) AS name,
    [CASE WHEN label IS NULL THEN 'MEMSET.memKind = ' || memKind END] AS unknown_kinds
  FROM CUPTI_ACTIVITY_KIND_MEMSET AS sets LEFT JOIN memory_kinds ON kind = memKind
  UNION ALL BY NAME
  SELECT
    5 AS part, 'cuda_sync' AS category, waits.* EXCLUDE (others, streamId, eventId),
    if(waits.streamId = 4294967295, -1, waits.streamId) AS streamId,
    nullif(waits.eventId, 4294967295) AS wait_on_event,
    waits.others AS others_of_wait, coalesce(label, 'Unknown Sync') AS name, label AS sync_kind,
    [CASE WHEN label IS NULL THEN 'SYNCHRONIZATION.syncType = ' || syncType END] AS unknown_kinds
  FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS waits LEFT JOIN sync_kinds ON kind = syncType
),
activities_of_gpu AS (
  FROM kernels
  UNION ALL BY NAME
  FROM of_known_kinds
  UNION ALL BY NAME
  SELECT
    4 AS part, 'kernel' AS category, * EXCLUDE (others), others AS others_of_graph,
    'CUDA graph ' || coalesce(graphId::VARCHAR, '?') AS name
  FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE
)
SELECT
  part, file_row, 'X' AS ph, category, name, TRY(start + $base_ns) AS ts_ns,
  CASE WHEN "end" >= start THEN TRY("end" - start) END AS dur_ns,
  CASE  -- in microseconds
    WHEN "end" < start THEN format('-{}.{:03d}', TRY(start - "end") // 1000, TRY(start - "end") % 1000)
  END AS dur_text,
  deviceId AS device, streamId AS stream, deviceId AS pid, streamId AS tid, correlationId AS correlation, bytes,
  gridX AS grid_x, gridY AS grid_y, gridZ AS grid_z, blockX AS block_x, blockY AS block_y, blockZ AS block_z,
  registersPerThread AS registers_per_thread, shared_memory_bytes, graphId AS graph_id,
  graphNodeId AS graph_node_id, sync_kind, wait_on_event,
  CASE
    WHEN part < 5 THEN {
      'device': deviceId, 'context': contextId, 'stream': streamId, 'correlation': correlationId,
      'grid': [gridX, gridY, gridZ],
      'block': [blockX, blockY, blockZ],
      'registers per thread': registersPerThread, 'shared memory': shared_memory_bytes, 'bytes': bytes,
      'graph id': graphId, 'graph node id': graphNodeId,
      'nsys.staticSharedMemory': staticSharedMemory, 'nsys.dynamicSharedMemory': dynamicSharedMemory
    }
  END AS arguments,
  CASE
    WHEN part = 5 THEN {
      'cuda_sync_kind': sync_kind, 'wait_on_cuda_event_id': wait_on_event, 'stream': streamId,
      'correlation': correlationId, 'device': deviceId, 'context': contextId
    }
  END AS arguments_of_wait,
  others_of_kernel, others_of_copy, others_of_set, others_of_graph, others_of_wait
FROM activities_of_gpu
WHERE coalesce((globalPid >> 24) & 16777215, $pid) = $pid
UNION ALL BY NAME
SELECT
  'kind_unknown' AS rule, count(*) AS rows,
  'CUPTI_ACTIVITY_KIND_' || arg_min(kind, (part, number, file_row)) AS example
FROM (
  SELECT part, file_row, unnest(unknown_kinds) AS kind, generate_subscripts(unknown_kinds, 1) AS number
  FROM of_known_kinds
  WHERE coalesce((globalPid >> 24) & 16777215, $pid) = $pid
)
WHERE kind IS NOT NULL
HAVING count(*) > 0
UNION ALL BY NAME
SELECT
  'graph_level_trace' AS rule, count(*) AS rows,
  format('CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {} row{}', count(*), if(count(*) = 1, '', 's')) AS example
FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE
WHERE coalesce((globalPid >> 24) & 16777215, $pid) = $pid
HAVING count(*) > 0
