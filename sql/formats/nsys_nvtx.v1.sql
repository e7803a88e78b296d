-- /// tw
-- kind    = "format"
-- name    = "nsys_nvtx"
-- version = 1
-- summary = "Nsight Systems: NVTX ranges and marks: operators, calls of NCCL, annotations, those of processes without a part."
--
-- [tables.NVTX_EVENTS]
-- required = ["start", "globalTid", "eventType"]
-- optional = ["end", "text VARCHAR", "textId", "domainId", "payload_data|binaryData BLOB"]
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
-- An operator is `aten::mm, seq = 12, op_id = 9, sizes = [[8, 4], [4, 2]], input_op_ids = …`; all parts after
-- the name are optional. Splitting a text at the marks takes a tenth of the time of a regular expression, which
-- is left to texts with unusual parts.
WITH labels AS NOT MATERIALIZED (
  SELECT
    NVTX_EVENTS.*, coalesce(NVTX_EVENTS.text, texts.value) AS label,
    CASE WHEN payload_data IS NOT NULL THEN nccl_payload(payload_data) END AS payload
  FROM NVTX_EVENTS LEFT JOIN StringIds_by_id AS texts ON texts.id = textId
  WHERE globalTid IS NOT NULL AND eventType IN (34, 59, 60, 65, 70, 71)
),
split_4 AS (SELECT *, string_split(coalesce(label, ''), ', input_op_ids = ') AS cut_4 FROM labels),
split_3 AS (SELECT *, string_split(cut_4[1], ', sizes = ') AS cut_3 FROM split_4),
split_2 AS (SELECT *, string_split(cut_3[1], ', op_id = ') AS cut_2 FROM split_3),
split_1 AS (SELECT *, string_split(cut_2[1], ', seq = ') AS cut_1 FROM split_2),
numbered AS (SELECT *, TRY_CAST(cut_1[2] AS BIGINT) AS number_1, TRY_CAST(cut_2[2] AS BIGINT) AS number_2 FROM split_1),
checked AS (
  SELECT
    *, CASE
      WHEN len(cut_1) > 2 OR len(cut_2) > 2 OR len(cut_3) > 2 OR len(cut_4) > 2 OR contains(cut_4[2], chr(10))
        OR cut_1[2] IS NOT NULL AND NOT coalesce(number_1::VARCHAR = cut_1[2] AND number_1 BETWEEN 0 AND 999999999999999999, false)
        OR cut_2[2] IS NOT NULL AND NOT coalesce(number_2::VARCHAR = cut_2[2] AND number_2 BETWEEN 0 AND 999999999999999999, false)
        OR NOT regexp_full_match(cut_3[2], '\[[0-9, \[\]-]*\]')
        THEN regexp_extract(
          coalesce(label, ''), '^((?s:.*?))(?:, seq = ([0-9]{1,18}))?(?:, op_id = ([0-9]{1,18}))?'
          '(?:, sizes = (\[[0-9, \[\]-]*\]))?(?:, input_op_ids = (.*))?$', ['0', '1', '2', '3', '4']
        )
    END AS unusual
  FROM numbered
),
parsed AS (
  SELECT
    * EXCLUDE (cut_1, cut_2, cut_3, cut_4, number_1, number_2, unusual),
    coalesce(nullif(if(unusual IS NULL, cut_1[1], unusual['0']), ''), label) AS name,
    if(unusual IS NULL, number_1, nullif(unusual['1'], '')::BIGINT) AS sequence_number,
    if(unusual IS NULL, number_2, nullif(unusual['2'], '')::BIGINT) AS operator_id,
    TRY_CAST(replace(nullif(if(unusual IS NULL, cut_3[2], unusual['3']), ''), ', ', ',') AS JSON) AS dims,
    nullif(if(unusual IS NULL, cut_4[2], unusual['4']), '') AS inputs,
    eventType IN (59, 70) AS is_push, eventType IN (59, 60, 70, 71) AND "end" IS NOT NULL AS has_end
  FROM checked
),
frameworks AS MATERIALIZED (  -- ranges of a framework around calls of NCCL
  SELECT file_row, globalTid, start, coalesce("end", 0) AS "end"
  FROM NVTX_EVENTS LEFT JOIN StringIds_by_id AS texts ON texts.id = textId  -- of two uses, `labels` would be stored
  WHERE globalTid IS NOT NULL AND eventType IN (34, 59, 60, 65, 70, 71)
    AND regexp_matches(coalesce(NVTX_EVENTS.text, texts.value), '^(nccl|gloo|mpi|ucc|record_param_comms):')
),
groups AS (
  SELECT payload."nsys.communicator" AS communicator, arg_max(payload."nsys.group_size", file_row) AS ranks
  FROM labels WHERE payload_data IS NOT NULL AND communicator IS NOT NULL AND payload."nsys.group_size" IS NOT NULL
  GROUP BY communicator
),
messages AS MATERIALIZED (  -- null: the root alone has a buffer for all ranks, or the number of ranks is not recorded
  SELECT
    file_row, globalTid, start, coalesce(nullif("end", 0), start) AS "end",
    if(label IN ('ncclSend', 'ncclRecv'), label, '') AS kind,
    CASE
      WHEN label IN ('ncclGather', 'ncclScatter') OR payload."nsys.message_bytes" < 0 THEN NULL
      -- What one rank contributes.
      WHEN label IN ('ncclAllGather', 'ncclReduceScatter', 'ncclAlltoAll')
        THEN TRY(payload."nsys.message_bytes" * ranks)
      ELSE payload."nsys.message_bytes"
    END AS bytes
  FROM labels LEFT JOIN groups ON communicator = coalesce(payload."nsys.communicator", 0)
  WHERE payload_data IS NOT NULL AND payload."nsys.message_bytes" IS NOT NULL
),
inside AS (
  SELECT frameworks.file_row, kind, sum(bytes) AS bytes, count(*) > count(bytes) AS is_unknown
  FROM messages ASOF JOIN (
    FROM frameworks QUALIFY row_number() OVER (PARTITION BY globalTid, start ORDER BY file_row DESC) = 1
  ) AS frameworks ON messages.globalTid = frameworks.globalTid AND messages.start >= frameworks.start
  WHERE messages.end <= frameworks.end
  GROUP BY ALL
),
sizes AS (  -- sends and receives of a range count once, the larger sum
  SELECT file_row, if(bool_or(is_unknown), NULL, max(bytes))::BIGINT AS bytes FROM inside GROUP BY file_row
  UNION ALL
  SELECT file_row, bytes FROM messages WHERE file_row NOT IN (SELECT file_row FROM inside)
),
ranges AS (
  SELECT
    parsed.* EXCLUDE (name), sizes.bytes,
    -- Functions of NCCL, and PyTorch's ranges for them.
    CASE
      WHEN NOT has_ranges AND starts_with(parsed.name, 'nccl') THEN MAP {
        'ncclAllReduce': 'nccl:all_reduce', 'ncclBroadcast': 'nccl:broadcast', 'ncclBcast': 'nccl:broadcast',
        'ncclReduce': 'nccl:reduce', 'ncclAllGather': 'nccl:all_gather', 'ncclSend': 'nccl:send',
        'ncclReduceScatter': 'nccl:reduce_scatter', 'ncclRecv': 'nccl:recv',
        'ncclAlltoAll': 'nccl:all_to_all', 'ncclGather': 'nccl:gather', 'ncclScatter': 'nccl:scatter'
      }[parsed.name]
    END AS range,
    coalesce(range, parsed.name) AS name,
    CASE
      WHEN (globalTid >> 24) & 16777215 <> $pid THEN 'process_annotation'
      WHEN (operator_id IS NOT NULL OR sequence_number IS NOT NULL) AND is_push
        AND regexp_matches(parsed.name, '^(nccl|gloo|mpi|ucc|record_param_comms):') IS NOT TRUE THEN 'cpu_op'
      WHEN range IS NULL AND regexp_matches(parsed.name, '^nccl[A-Z]') THEN 'library'
      ELSE 'user_annotation'
    END AS category
  FROM parsed CROSS JOIN (SELECT count(*) > 0 AS has_ranges FROM frameworks)
  LEFT JOIN sizes ON sizes.file_row = parsed.file_row
)
-- Kernels launch inside ncclGroupEnd, so an annotation of that name would hide the framework's range of the
-- collective. A function of NCCL becomes an annotation only if the framework wrote no ranges.
SELECT
  21 AS part, file_row, if(has_end, 'X', 'i') AS ph, category, name, TRY(start + $base_ns) AS ts_ns,
  CASE WHEN has_end AND "end" >= start THEN TRY("end" - start) END AS dur_ns,
  CASE  -- in microseconds
    WHEN "end" < start THEN format('-{}.{:03d}', TRY(start - "end") // 1000, TRY(start - "end") % 1000)
  END AS dur_text,
  (globalTid >> 24) & 16777215 AS pid, globalTid & 16777215 AS tid, sequence_number,
  -- The element type is not recorded; the entry `bytes` of `dtypes` has elements of one byte.
  coalesce(dims, CASE WHEN category = 'user_annotation' THEN ('[[' || bytes || ']]')::JSON END) AS shapes,
  CASE WHEN bytes IS NOT NULL AND shapes IS NOT NULL THEN '["bytes"]' END AS dtypes, bytes,
  {
    'Input Dims': dims, 'Sequence number': sequence_number, 'nsys.op_id': operator_id,
    'nsys.input_op_ids': inputs, 'nsys.domainId': nullif(domainId, 0),
    'nsys.eventType': if(is_push, NULL, eventType)
  } AS arguments, payload, others
FROM ranges
UNION ALL BY NAME
SELECT 'kind_unknown' AS rule, count(*) AS rows, 'NVTX_EVENTS.eventType' AS example
FROM NVTX_EVENTS
-- The others name categories, threads, domains and CUDA objects.
WHERE globalTid IS NOT NULL AND coalesce(eventType, -1) NOT IN (34, 59, 60, 65, 70, 71, 33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99)
HAVING count(*) > 0
UNION ALL BY NAME
SELECT 'open_range' AS rule, count(*) AS rows, 'NVTX_EVENTS: a range without an end' AS example
FROM NVTX_EVENTS WHERE globalTid IS NOT NULL AND eventType IN (59, 60, 70, 71) AND "end" IS NULL HAVING count(*) > 0
