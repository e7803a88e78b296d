-- /// tw
-- kind    = "format"
-- name    = "nsys_counters"
-- version = 1
-- summary = "Nsight Systems: sampled metrics of the devices of one process, and its device memory in use."
--
-- [tables.CUDA_GPU_MEMORY_USAGE_EVENTS]
-- required = ["start", "globalPid", "bytes", "memoryOperationType"]
-- optional = ["deviceId", "memKind"]
--
-- [tables.GPU_METRICS]
-- required = ["timestamp", "typeId", "metricId", "value DOUBLE"]
--
-- [tables.TARGET_INFO_GPU_METRICS]
-- required = ["metricId", "metricName VARCHAR"]
-- optional = ["typeId"]
--
-- [tables.devices]
-- required = ["gpuId", "cudaId"]
-- keys     = ["gpuId"]
--
-- [params]
-- pid     = { type = "BIGINT", default = 0, doc = "The process." }
-- base_ns = { type = "BIGINT", default = 0, unit = "ts", doc = "What is added to the times in the file." }
--
-- [changes]
-- 1 = "First version."
-- ///
-- `devices` has the GPUs of the process with their CUDA devices.
WITH memory_kinds(kind, label) AS (
  VALUES
    (0, 'Pageable'), (1, 'Pinned'), (2, 'Device'), (3, 'Array'), (4, 'Managed'), (5, 'Device Static'),
    (6, 'Managed Static'), (7, 'Unknown')
),
changes AS (
  SELECT
    changes.*, memoryOperationType = 1 AS is_release, if(memKind IS NULL, NULL, coalesce(label, 'Unknown')) AS memory,
    memory IS NOT NULL AND label IS NULL AS is_unknown,
    sum(coalesce(CASE WHEN is_release THEN -bytes WHEN NOT is_release THEN bytes END, 0)) OVER (
      PARTITION BY deviceId || '/' || memory ORDER BY start NULLS LAST, file_row ROWS UNBOUNDED PRECEDING
    ) AS in_use
  FROM CUDA_GPU_MEMORY_USAGE_EVENTS AS changes LEFT JOIN memory_kinds ON kind = memKind
  WHERE (globalPid >> 24) & 16777215 = $pid
),
metrics AS (
  SELECT coalesce(typeId, 0) AS type_id, metricId AS metric_id, arg_max(metricName, file_row) AS metric
  FROM TARGET_INFO_GPU_METRICS WHERE metricName IS NOT NULL AND metricId IS NOT NULL GROUP BY ALL
)
SELECT
  31 AS part, file_row, 'C' AS ph, format('GPU {} memory ({})', deviceId, memory) AS name,
  TRY(start + $base_ns) AS ts_ns, deviceId AS device, deviceId AS pid,
  {'bytes': TRY_CAST(in_use AS BIGINT), 'nsys.bytes': bytes, 'nsys.released': is_release::BIGINT} AS arguments
FROM changes
UNION ALL BY NAME
SELECT
  32 AS part, samples.file_row, 'C' AS ph, coalesce(metric, 'metric ' || coalesce(metricId::VARCHAR, 'None')) AS name,
  TRY(timestamp + $base_ns) AS ts_ns, cudaId AS device, cudaId AS pid,
  '{' || to_json(name) || ':' || regexp_replace(value::VARCHAR, '\.0$', '') || '}' AS args
FROM GPU_METRICS AS samples
JOIN devices_by_gpuId AS devices ON devices.gpuId = typeId & 255  -- the GPU is in the low bits
LEFT JOIN metrics ON type_id = typeId AND metric_id = metricId
WHERE EXISTS (FROM metrics)
UNION ALL BY NAME
SELECT
  'kind_unknown' AS rule, count(*) AS rows,
  'CUDA_GPU_MEMORY_USAGE_EVENTS.memKind = ' || arg_min(memKind, (coalesce(start, 9223372036854775807), file_row)) AS example
FROM changes WHERE is_unknown HAVING count(*) > 0
