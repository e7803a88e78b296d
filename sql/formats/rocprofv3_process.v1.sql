-- /// tw
-- kind    = "format"
-- name    = "rocprofv3_process"
-- version = 1
-- summary = "rocprofv3: what a JSON result says about a process: GPUs, kernels, names of operations, and texts of markers."
--
-- [tables."agents, kernel_symbols, strings"]
-- required = ["json VARCHAR"]
--
-- [changes]
-- 1 = "First version."
-- ///
-- Of agents and kernels there is a row each. `subject` is the table that a row describes. The kind of an operation is its
-- place in the list of kinds; each kind has a row without a name, so that one without operations is known too.
WITH gpus AS (
  SELECT
    row_number() OVER () - 1 AS number, TRY_CAST(agent ->> '$.id.handle' AS BIGINT) AS agent_handle,
    {'id': number, 'name': coalesce(nullif(agent ->> '$.product_name', ''), agent ->> '$.name')} AS device
  FROM (SELECT json AS agent FROM agents)
  WHERE (agent -> '$.type') = '2' AND json_type(agent, '$.id.handle') IN ('BIGINT', 'UBIGINT')
),
kinds AS (
  SELECT place, lower(kind ->> '$.kind') AS word, kind -> '$.operations' AS operations
  FROM (
    SELECT unnest(range(len(kinds))) AS place, unnest(kinds) AS kind
    FROM (SELECT json_extract(json, '$.buffer_records[*]') AS kinds FROM strings)
  )
)
-- Of agents with one handle the last one counts.
(
  SELECT 'gpus' AS subject, if(number = max(number) OVER (PARTITION BY agent_handle), agent_handle, NULL) AS handle, number, device
  FROM gpus ORDER BY number
)
UNION ALL BY NAME
SELECT
  'kernel_symbols' AS subject, if(json_type(said[1]) IN ('BIGINT', 'UBIGINT'), TRY_CAST(said[1] AS BIGINT), NULL) AS kernel_id,
  list_filter(said[2:], LAMBDA each: json_type(each) = 'VARCHAR' AND each <> '""')[1] ->> '$' AS name
-- Read once, as texts may be long.
FROM (
  SELECT json_extract(json, ['$.kernel_id', '$.formatted_kernel_name', '$.demangled_kernel_name', '$.kernel_name']) AS said
  FROM kernel_symbols
)
UNION ALL BY NAME
SELECT subject, place AS kind, operation, if(operation >= 0, operations ->> format('$[{}]', operation), NULL) AS name
FROM (
  SELECT *, unnest(range(-1, coalesce(json_array_length(operations), 0)::BIGINT)) AS operation
  FROM kinds
  JOIN (
    VALUES ('memory_copy', 'memory_copy'), ('hip_api', 'hip'), ('hsa_api', 'hsa'), ('marker_api', 'marker'), ('rccl_api', 'rccl')
  ) AS tables (subject, beginning) ON starts_with(word, beginning)
)
UNION ALL BY NAME
SELECT 'markers' AS subject, TRY_CAST(marker ->> '$.key' AS BIGINT) AS correlation, marker ->> '$.value' AS name
FROM (SELECT unnest(json_extract(json, '$.marker_api[*]')) AS marker FROM strings)
WHERE json_type(marker, '$.key') IN ('BIGINT', 'UBIGINT') AND json_type(marker, '$.value') = 'VARCHAR'
