-- /// tw
-- kind    = "format"
-- name    = "nccl_profiler"
-- version = 1
-- summary = "Traces of NCCL's example profiler plug-in: calls, collectives, proxy operations, and the channels of kernels."
--
-- [tables.records]
-- required = ["name VARCHAR", "cat VARCHAR", "ph VARCHAR", "ts_ns"]
-- optional = ["id VARCHAR", "pid VARCHAR", "tid VARCHAR", "args VARCHAR"]
--
-- [changes]
-- 1 = "First version. From the public source of the plug-in in NCCL 2.27 to 2.29; untested on real data."
-- ///
-- What belongs to one collective shares a correlation ID: itself, its channels and proxy operations, and its kernel.
WITH numbered AS (
  SELECT
    * EXCLUDE (others),
    row_number() OVER (PARTITION BY pid, cat, name, id, ph ORDER BY file_row) AS occurrence,
    -- The channels and proxy operations of a collective are between its begin and its end.
    nullif(
      last_value(CASE WHEN cat IN ('COLL', 'P2P') THEN if(ph = 'b', file_row, -1) END IGNORE NULLS) OVER (
        PARTITION BY pid ORDER BY file_row
      ),
      -1
    ) AS collective_row
  FROM records
),
slices AS (
  SELECT
    begins.*,
    -- A begin that the plug-in has not seen has the time 0.
    CASE WHEN begins.ts_ns <> 0 OR ends.ts_ns = 0 THEN ends.ts_ns END AS end_ns
  FROM numbered AS begins
  LEFT JOIN (FROM numbered WHERE ph = 'e') AS ends USING (pid, cat, name, id, occurrence)
  WHERE begins.ph = 'b'
),
collectives AS (
  SELECT
    file_row, pid, name, args::JSON AS given,
    given ->> '$.CommHash' AS communicator, dense_rank() OVER (ORDER BY communicator) AS stream, given ->> '$.Datatype' AS datatype,
    TRY_CAST(given ->> '$.SeqNum' AS BIGINT) AS sequence, TRY_CAST(given ->> '$.Count' AS BIGINT) AS elements
  FROM slices
  WHERE cat IN ('COLL', 'P2P')
),
kernels AS (
  SELECT collective_row, min(ts_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS channels
  FROM slices
  WHERE cat = 'GPU' AND name = 'KernelCh'
  GROUP BY collective_row
)
SELECT
  1 AS part, file_row, 'X' AS ph, json_object('cat', cat) AS extra, CASE WHEN ts_ns = 0 THEN '0' END AS ts_text,
  CASE WHEN cat IN ('COLL', 'P2P') THEN 'user_annotation' ELSE 'library' END AS category,
  if(cat IN ('COLL', 'P2P'), 'nccl::' || name, name) AS name, pid,
  -- Calls nest; what they start overlaps.
  if(ends_with(cat, 'API') OR cat = 'GROUP', tid, concat_ws(' ', cat, coalesce(args::JSON ->> '$.CommHash', args::JSON ->> '$.Channel')))
    AS tid,
  CASE WHEN ts_ns <> 0 THEN ts_ns END AS ts_ns, CASE WHEN end_ns >= ts_ns THEN end_ns - ts_ns END AS dur_ns, collective_row AS correlation, args
FROM slices
UNION ALL BY NAME
SELECT
  2 AS part, file_row, 'X' AS ph, 'kernel' AS category, 'ncclDevKernel_' || name AS name,
  '0' AS pid, stream::VARCHAR AS tid, file_row AS correlation, 0::BIGINT AS device, stream,
  kernels.start_ns AS ts_ns, kernels.end_ns - kernels.start_ns AS dur_ns, TRUE AS has_collective,
  lower(name) AS collective, communicator AS process_group, sequence AS collective_sequence, elements AS in_elements,
  CASE lower(datatype)
    WHEN 'ncclfloat32' THEN 'Float' WHEN 'ncclfloat16' THEN 'Half' WHEN 'ncclbfloat16' THEN 'BFloat16'
    WHEN 'ncclfloat64' THEN 'Double' WHEN 'ncclint8' THEN 'Char' WHEN 'ncclint32' THEN 'Int' WHEN 'ncclint64' THEN 'Long'
    WHEN 'ncclfloat8e4m3' THEN 'Float8_e4m3fn' WHEN 'ncclfloat8e5m2' THEN 'Float8_e5m2' WHEN 'nccluint8' THEN 'Byte'
    ELSE datatype
  END AS collective_dtype,
  {
    'Collective name': lower(name), 'Process Group Name': communicator, 'Seq': sequence, 'In msg nelems': elements,
    'dtype': datatype, 'nccl_profiler.channels': channels, 'device': 0, 'stream': stream
  } AS arguments
FROM kernels
JOIN collectives ON collectives.file_row = kernels.collective_row
