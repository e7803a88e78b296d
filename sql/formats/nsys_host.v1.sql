-- /// tw
-- kind    = "format"
-- name    = "nsys_host"
-- version = 1
-- summary = "Nsight Systems: calls of the CUDA API, the OS runtime, MPI and libraries by one process."
--
-- [tables.CUPTI_ACTIVITY_KIND_RUNTIME]
-- required = ["start", "globalTid"]
-- optional = ["end", "eventClass", "correlationId", "nameId", "returnValue", "callchainId"]
--
-- [tables.OSRT_API]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
--
-- [tables.MPI_COLLECTIVES_EVENTS]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
--
-- [tables.MPI_P2P_EVENTS]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
--
-- [tables.MPI_START_WAIT_EVENTS]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
--
-- [tables.MPI_OTHER_EVENTS]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
--
-- [tables.CUBLAS_EVENTS]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
--
-- [tables.CUDNN_EVENTS]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
--
-- [tables.PROFILER_OVERHEAD]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
--
-- [tables.OVERHEAD]
-- required = ["start", "globalTid"]
-- optional = ["end", "nameId", "textId"]
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
WITH api_calls AS (
  SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE (globalTid >> 24) & 16777215 = $pid
),
names AS (  -- cudaLaunchKernel_v7000 is cudaLaunchKernel
  SELECT
    id, regexp_replace(value, '(_v[0-9]+|_ptsz|_ptds)+$', '') AS name,
    regexp_matches(name, '^cu[A-Z]') AS is_of_driver
  FROM StringIds_by_id WHERE id IN (SELECT nameId FROM api_calls)
),
copies AS (  -- a copy only carries the call chain of a call that it equals, or contains, or that contains it
  SELECT
    copies.file_row, copies.callchainId,
    arg_min(calls.file_row, (calls.nameId IS DISTINCT FROM copies.nameId, calls.file_row)) AS call_row
  FROM api_calls AS copies
  JOIN api_calls AS calls
    ON calls.globalTid = copies.globalTid
    AND calls.correlationId IS NOT DISTINCT FROM copies.correlationId
    AND CASE
      WHEN calls.start = copies.start AND calls.nameId IS NOT DISTINCT FROM copies.nameId THEN true
      WHEN calls.start < copies.start THEN calls."end" >= copies."end" AND calls.correlationId IS NOT NULL
      ELSE calls."end" <= copies."end" AND calls.correlationId IS NOT NULL
    END
  WHERE copies.eventClass = 67 AND coalesce(calls.eventClass, -1) <> 67
  GROUP BY ALL
),
chains AS (
  SELECT call_row, arg_max(callchainId, file_row) AS callchainId, true AS is_copied FROM copies GROUP BY call_row
),
calls AS (
  SELECT 12 AS part, 'os_runtime' AS category, * EXCLUDE (others), others AS others_12 FROM OSRT_API
  UNION ALL BY NAME SELECT 13 AS part, 'mpi' AS category, * EXCLUDE (others), others AS others_13 FROM MPI_COLLECTIVES_EVENTS
  UNION ALL BY NAME SELECT 14 AS part, 'mpi' AS category, * EXCLUDE (others), others AS others_14 FROM MPI_P2P_EVENTS
  UNION ALL BY NAME SELECT 15 AS part, 'mpi' AS category, * EXCLUDE (others), others AS others_15 FROM MPI_START_WAIT_EVENTS
  UNION ALL BY NAME SELECT 16 AS part, 'mpi' AS category, * EXCLUDE (others), others AS others_16 FROM MPI_OTHER_EVENTS
  UNION ALL BY NAME SELECT 17 AS part, 'library' AS category, * EXCLUDE (others), others AS others_17 FROM CUBLAS_EVENTS
  UNION ALL BY NAME SELECT 18 AS part, 'library' AS category, * EXCLUDE (others), others AS others_18 FROM CUDNN_EVENTS
  UNION ALL BY NAME SELECT 19 AS part, 'overhead' AS category, * EXCLUDE (others), others AS others_19 FROM PROFILER_OVERHEAD
  UNION ALL BY NAME SELECT 20 AS part, 'overhead' AS category, * EXCLUDE (others), others AS others_20 FROM OVERHEAD
),
slices AS (
  SELECT
    11 AS part, api_calls.* EXCLUDE (others, callchainId), names.name,
    CASE
      WHEN eventClass = 1 OR coalesce(eventClass, -1) <> 0 AND is_of_driver THEN 'cuda_driver'
      ELSE 'cuda_runtime'
    END AS category,
    {
      'correlation': correlationId, 'nsys.returnValue': nullif(returnValue, 0),
      'nsys.callchainId': if(is_copied, chains.callchainId, api_calls.callchainId)
    } AS arguments, others AS others_11
  FROM api_calls
  LEFT JOIN names ON names.id = nameId
  LEFT JOIN chains ON chains.call_row = api_calls.file_row
  WHERE api_calls.file_row NOT IN (SELECT file_row FROM copies)
  UNION ALL BY NAME
  SELECT calls.*, coalesce(by_name.value, by_text.value) AS name
  FROM calls
  LEFT JOIN StringIds_by_id AS by_name ON by_name.id = nameId
  LEFT JOIN StringIds_by_id AS by_text ON by_text.id = textId
  WHERE (globalTid >> 24) & 16777215 = $pid
)
SELECT
  part, file_row, 'X' AS ph, category, name, TRY(start + $base_ns) AS ts_ns,
  CASE WHEN "end" >= start THEN TRY("end" - start) END AS dur_ns,
  CASE  -- in microseconds
    WHEN "end" < start THEN format('-{}.{:03d}', TRY(start - "end") // 1000, TRY(start - "end") % 1000)
  END AS dur_text,
  (globalTid >> 24) & 16777215 AS pid, globalTid & 16777215 AS tid, correlationId AS correlation, arguments,
  COLUMNS('others_.*')
FROM slices
UNION ALL BY NAME
SELECT 'kind_unknown' AS rule, count(*) AS rows, 'CUPTI_ACTIVITY_KIND_RUNTIME.eventClass' AS example
FROM api_calls WHERE eventClass NOT IN (0, 1, 67) AND file_row NOT IN (SELECT file_row FROM copies)
HAVING count(*) > 0
UNION ALL BY NAME
SELECT
  'callchain_copy' AS rule, count(*) AS rows,
  format('CUPTI_ACTIVITY_KIND_RUNTIME: {} row{}', count(*), if(count(*) = 1, '', 's')) AS example
FROM copies
HAVING count(*) > 0
