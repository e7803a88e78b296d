-- /// tw
-- kind    = "format"
-- name    = "rpd"
-- version = 1
-- summary = "Databases of rocmProfileData: the GPU activities, calls and counters of one process."
--
-- [tables.rocpd_op]
-- optional = ["id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"]
--
-- [tables.rocpd_api]
-- optional = ["id", "pid", "tid", "start", "end", "apiName_id", "args_id"]
-- keys     = ["id"]
--
-- [tables.rocpd_api_ops]
-- optional = ["api_id", "op_id"]
-- keys     = ["op_id"]
--
-- [tables.rocpd_string]
-- optional = ["id", "string VARCHAR"]
-- keys     = ["id"]
--
-- [tables.rocpd_kernelapi]
-- required = ["api_ptr_id"]
-- optional = ["id", "kernelName_id", "gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ"]
-- keys     = ["api_ptr_id"]
--
-- [tables.rocpd_copyapi]
-- required = ["api_ptr_id"]
-- optional = ["id", "size"]
-- keys     = ["api_ptr_id"]
--
-- [tables.ext_autogradapi]
-- optional = ["api_ptr_id", "autogradName_id", "seq VARCHAR", "op_id VARCHAR", "sizes VARCHAR"]
-- keys     = ["api_ptr_id"]
--
-- [tables.rocpd_monitor]
-- optional = ["deviceId", "monitorType VARCHAR", "start", "value VARCHAR"]
--
-- [params]
-- pid = { type = "BIGINT", doc = "The process; null for all." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH claimed AS (
  SELECT ops.*, launched.api_id, calls.pid
  FROM rocpd_op AS ops
  LEFT JOIN rocpd_api_ops_by_op_id AS launched ON launched.op_id = ops.id
  LEFT JOIN rocpd_api_by_id AS calls ON calls.id = launched.api_id
),
owners AS (  -- of a device: the process that most of its ops have
  SELECT device, arg_max(process, (ops, -process)) AS owner
  FROM (SELECT gpuId AS device, pid AS process, count(*) AS ops FROM claimed WHERE pid IS NOT NULL GROUP BY ALL)
  GROUP BY device
),
activities_of_gpu AS (
  SELECT
    claimed.*, coalesce(kinds.string, '') AS kind, starts_with(kind, 'Copy') AS is_copy,
    coalesce(nullif(descriptions.string, ''), nullif(symbols.string, ''), kind) AS kernel,
    CASE kind
      WHEN 'CopyHostToDevice' THEN 'HtoD' WHEN 'CopyDeviceToHost' THEN 'DtoH'
      WHEN 'CopyDeviceToDevice' THEN 'DtoD' WHEN 'CopyHostToHost' THEN 'HtoH' ELSE 'Unknown'
    END AS direction,
    CASE WHEN NOT is_copy AND workgroupX > 0 THEN workgroupX END AS block_x,
    CASE WHEN NOT is_copy AND workgroupY > 0 THEN workgroupY END AS block_y,
    CASE WHEN NOT is_copy AND workgroupZ > 0 THEN workgroupZ END AS block_z,
    -- The grid in the file counts threads.
    CASE WHEN gridX > 0 THEN TRY(gridX + block_x - 1) // block_x END AS grid_x,
    CASE WHEN gridY > 0 THEN TRY(gridY + block_y - 1) // block_y END AS grid_y,
    CASE WHEN gridZ > 0 THEN TRY(gridZ + block_z - 1) // block_z END AS grid_z,
    CASE WHEN is_copy THEN copies.size END AS bytes,
    launches.others AS others_of_launch, copies.others AS others_of_copy,
    coalesce(claimed.pid, owners.owner) AS process
  FROM claimed
  LEFT JOIN owners ON owners.device = claimed.gpuId
  LEFT JOIN rocpd_string_by_id AS kinds ON kinds.id = claimed.opType_id
  LEFT JOIN rocpd_string_by_id AS descriptions ON descriptions.id = claimed.description_id
  LEFT JOIN rocpd_kernelapi_by_api_ptr_id AS launches ON launches.api_ptr_id = claimed.api_id
  LEFT JOIN rocpd_string_by_id AS symbols ON symbols.id = launches.kernelName_id
  LEFT JOIN rocpd_copyapi_by_api_ptr_id AS copies ON copies.api_ptr_id = claimed.api_id
  WHERE process = coalesce($pid, process)
),
calls AS (
  SELECT
    rocpd_api.*, coalesce(names.string, '') AS call, texts.string AS text,
    call = 'UserMarker' AS is_marker, starts_with(call, 'hip') AS is_call,
    CASE WHEN is_call THEN rocpd_api.id END AS correlation,
    is_marker AND operators.api_ptr_id IS NOT NULL AS is_operator, operator_names.string AS operator,
    replace(sizes, ' ', '') AS plain_sizes,
    CASE WHEN regexp_matches(plain_sizes, '^\[[0-9,\[\]-]*\]$') THEN TRY_CAST(plain_sizes AS JSON) END AS shapes,
    CASE WHEN regexp_matches(seq, '^[0-9]{1,18}$') THEN seq::BIGINT END AS sequence_number,
    CASE WHEN regexp_matches(op_id, '^[0-9]{1,18}$') THEN op_id::BIGINT END AS operator_id
  FROM rocpd_api
  LEFT JOIN rocpd_string_by_id AS names ON names.id = rocpd_api.apiName_id
  LEFT JOIN rocpd_string_by_id AS texts ON texts.id = rocpd_api.args_id
  LEFT JOIN ext_autogradapi_by_api_ptr_id AS operators ON operators.api_ptr_id = rocpd_api.id
  LEFT JOIN rocpd_string_by_id AS operator_names ON operator_names.id = operators.autogradName_id
  WHERE rocpd_api.pid = coalesce($pid, rocpd_api.pid)
)
SELECT
  1 AS part, file_row, 'X' AS ph, CASE WHEN is_copy THEN 'gpu_memcpy' ELSE 'kernel' END AS category,
  CASE WHEN is_copy THEN 'Memcpy ' || direction ELSE kernel END AS name, start AS ts_ns,
  CASE WHEN "end" >= start THEN TRY("end" - start) END AS dur_ns, gpuId AS device, queueId AS stream,
  gpuId AS pid, queueId AS tid, api_id AS correlation, bytes,
  grid_x, grid_y, grid_z, block_x, block_y, block_z,
  {
    'device': gpuId, 'stream': queueId, 'correlation': api_id,
    'grid': [grid_x, grid_y, grid_z],
    'block': [block_x, block_y, block_z], 'bytes': bytes, 'rpd.opType': kind
  } AS arguments, others_of_launch, others_of_copy, others AS others_of_op,
  process, gpuId AS process_device
FROM activities_of_gpu
UNION ALL BY NAME
SELECT
  2 AS part, file_row, 'X' AS ph,
  CASE
    WHEN is_operator THEN 'cpu_op' WHEN is_marker THEN 'user_annotation'
    WHEN is_call THEN 'cuda_runtime' ELSE 'overhead'
  END AS category,
  CASE WHEN is_operator THEN operator WHEN is_marker THEN text ELSE call END AS name, start AS ts_ns,
  CASE WHEN "end" >= start THEN TRY("end" - start) END AS dur_ns, pid, tid, correlation,
  sequence_number, shapes,
  {
    'correlation': correlation, 'Sequence number': sequence_number, 'Input Dims': shapes,
    'rpd.op_id': operator_id, 'rpd.args': CASE WHEN NOT is_marker THEN nullif(text, '') END
  } AS arguments_of_call
FROM calls
UNION ALL BY NAME
SELECT
  3 AS part, file_row, 'C' AS ph, format('GPU {} {}', deviceId, coalesce(monitorType, 'value')) AS name,
  start AS ts_ns, deviceId AS device, deviceId AS pid,
  '{' || to_json(coalesce(monitorType, 'value')) || ':' || value || '}' AS args
FROM rocpd_monitor
WHERE regexp_matches(value, '^-?(0|[1-9][0-9]*)(\.[0-9]+)?$')
