-- /// tw
-- kind      = "table"
-- name      = "parsed"
-- version   = 1
-- summary   = "An element of the event array with its typed columns, before nesting and steps."
-- requires  = ["raw@1", "header@1", "categories@1", "uncategorised@1", "brackets@1"]
-- grain     = ["run_id", "rank", "event_id"]
-- order     = ["run_id", "rank", "event_id"]
-- transient = true
--
-- [params]
-- longest_ns   = { type = "BIGINT", default = 100000000000000, unit = "ns", min = 1, doc = "A slice that would be longer than this (28 hours) has lost its start or its end: its length is no length." }
-- epoch_gap_ns = { type = "BIGINT", default = 3600000000000, unit = "ns", doc = "A time stamp of 0 is no time where all others are more than this later." }
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run." }
-- rank             = { type = "INTEGER", doc = "The rank." }
-- event_id         = { type = "BIGINT", unit = "id", doc = "Position in the file's event array, from 0." }
-- ph               = { type = "VARCHAR", null = true, doc = "Phase: X slice, B/E begin and end, i instant, C counter, s/t/f flow, M metadata; null for what is no event." }
-- category         = { type = "VARCHAR", null = true, doc = "The category in today's Kineto spelling." }
-- raw_category     = { type = "VARCHAR", null = true, doc = "The category as in the file." }
-- name             = { type = "VARCHAR", null = true, doc = "The name." }
-- pid              = { type = "VARCHAR", null = true, doc = "The process as text; of a GPU row the device." }
-- tid              = { type = "VARCHAR", null = true, doc = "The thread as text; of a GPU row the stream." }
-- ts_ns            = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Start, base time included; null where the file has no usable time." }
-- dur_ns           = { type = "BIGINT", null = true, unit = "ns", doc = "Length: end rounded to ns less start; null where start or length is unusable or negative." }
-- ts_text          = { type = "VARCHAR", null = true, doc = "The file's number where printing ts_ns does not give it." }
-- dur_text         = { type = "VARCHAR", null = true, doc = "The file's number where printing dur_ns does not give it." }
-- correlation      = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Id that a launch and its GPU rows share." }
-- external_id      = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Id that an operator and its launches share." }
-- stream           = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream of GPU rows, GPU annotations and synchronisations; -1 where all streams are meant." }
-- device           = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device." }
-- bytes            = { type = "BIGINT", null = true, signed = true, unit = "bytes", doc = "Bytes moved, set, allocated, or negative: freed." }
-- sequence_number  = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Autograd's number that forward and backward operators share." }
-- forward_thread   = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Autograd's number of the thread that ran the forward operator." }
-- python_id        = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The Python tracer's id of a frame." }
-- python_parent_id = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The Python tracer's id of the calling frame." }
-- module_id        = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The Python tracer's id of an nn.Module instance." }
-- shapes           = { type = "JSON", null = true, doc = "Shapes of an operator's inputs." }
-- dtypes           = { type = "JSON", null = true, doc = "Types of an operator's inputs." }
-- flow_id          = { type = "VARCHAR", null = true, doc = "The event's id as text; pairs flows and async events of one category." }
-- end_id           = { type = "BIGINT", null = true, unit = "id", doc = "Of a B row: the E row that ends it." }
-- args             = { type = "JSON", null = true, doc = "The arguments, verbatim." }
-- extra            = { type = "JSON", null = true, doc = "Other keys of the event, and values of unusual JSON type; for what is no object, the element itself." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  origin AS (
    SELECT
      max(base_ns) AS base_ns,
      (SELECT min(ts) FROM raw WHERE ts > 0 AND ph = 'X') * 1000 > $epoch_gap_ns AS zero_is_no_time
    FROM header
  ),
  timed AS (
    SELECT
      raw.run_id,
      raw.rank,
      raw.event_id,
      raw.ph,
      coalesce(known.category, uncategorised.category, raw.cat) AS category,
      coalesce(known.role, uncategorised.role) AS role,
      raw.cat AS raw_category,
      raw.name,
      raw.pid ->> '$' AS pid,
      raw.tid ->> '$' AS tid,
      raw.id ->> '$' AS flow_id,
      raw.pid AS pid_json,
      raw.tid AS tid_json,
      raw.id AS id_json,
      origin.base_ns,
      CASE
        WHEN raw.ts = 0 AND origin.zero_is_no_time AND raw.ph <> 'M' THEN NULL
        WHEN raw.ts_ns IS NOT NULL THEN try(raw.ts_ns + origin.base_ns)
        ELSE TRY_CAST(raw.ts * 1000 + origin.base_ns AS BIGINT)
      END AS ts_ns,
      CASE
        WHEN brackets.end_id IS NOT NULL THEN TRY_CAST(brackets.end_ts * 1000 + origin.base_ns AS BIGINT)
        WHEN raw.ts_ns IS NOT NULL AND raw.dur_ns >= 0 THEN try(raw.ts_ns + raw.dur_ns + origin.base_ns)
        WHEN raw.dur >= 0 THEN TRY_CAST((raw.ts + raw.dur) * 1000 + origin.base_ns AS BIGINT)
      END AS end_ns,
      brackets.end_id,
      raw.ts_text,
      raw.dur_text,
      raw.args,
      json_transform(
        raw.args,
        '{"correlation": "BIGINT", "External id": "BIGINT", "stream": "BIGINT", "Stream Id": "BIGINT",
          "device": "BIGINT", "Device Id": "BIGINT", "bytes": "BIGINT", "Sequence number": "BIGINT",
          "Fwd thread id": "BIGINT", "Python id": "BIGINT", "Python parent id": "BIGINT",
          "Python module id": "BIGINT", "Input Dims": "JSON", "Input type": "JSON"}'
      ) AS arg,
      json_transform(
        raw.args, '{"external id": "BIGINT", "Bytes": "BIGINT", "Input dims": "JSON"}'
      ) AS old_arg,
      CASE WHEN raw.ph IS NULL AND ltrim(raw.text) NOT LIKE '{%' THEN raw.text::JSON ELSE raw.extra END AS extra
    FROM raw
    CROSS JOIN origin
    LEFT JOIN categories AS known ON known.raw_category = raw.cat
    LEFT JOIN uncategorised ON uncategorised.event_id = raw.event_id
    LEFT JOIN brackets ON brackets.begin_id = raw.event_id
  )
SELECT
  run_id,
  rank,
  event_id,
  ph,
  category,
  raw_category,
  name,
  pid,
  tid,
  ts_ns,
  CASE WHEN try(end_ns - ts_ns) <= $longest_ns THEN end_ns - ts_ns END AS dur_ns,
  CASE
    WHEN ts_ns < base_ns THEN ts_text
    WHEN (ts_ns - base_ns) % 1000 = 0
      THEN CASE WHEN ts_text <> ((ts_ns - base_ns) // 1000)::VARCHAR THEN ts_text END
    WHEN ts_text <> ((ts_ns - base_ns) // 1000)::VARCHAR || '.' || lpad(((ts_ns - base_ns) % 1000)::VARCHAR, 3, '0')
      THEN ts_text
    WHEN ts_ns IS NULL THEN ts_text
  END AS ts_text,
  CASE
    WHEN ph = 'B' THEN dur_text
    WHEN dur_ns % 1000 = 0 THEN CASE WHEN dur_text <> (dur_ns // 1000)::VARCHAR THEN dur_text END
    WHEN dur_text <> (dur_ns // 1000)::VARCHAR || '.' || lpad((dur_ns % 1000)::VARCHAR, 3, '0') THEN dur_text
    WHEN dur_ns IS NULL THEN dur_text
  END AS dur_text,
  arg.correlation AS correlation,
  coalesce(arg."External id", old_arg."external id") AS external_id,
  CASE role
    WHEN 'device' THEN coalesce(arg.stream, arg."Stream Id", TRY_CAST(regexp_extract(tid, '-?[0-9]+$') AS BIGINT))
    WHEN 'device_annotation' THEN TRY_CAST(regexp_extract(tid, '-?[0-9]+$') AS BIGINT)
    WHEN 'device_event' THEN arg.stream
    WHEN 'sync' THEN CASE WHEN arg.stream = 4294967295 THEN -1 ELSE arg.stream END
  END AS stream,
  CASE
    WHEN role IN ('device', 'device_annotation', 'device_event', 'sync') THEN coalesce(arg.device, TRY_CAST(pid AS BIGINT))
    ELSE coalesce(arg.device, arg."Device Id")
  END AS device,
  coalesce(arg.bytes, old_arg."Bytes") AS bytes,
  arg."Sequence number" AS sequence_number,
  arg."Fwd thread id" AS forward_thread,
  arg."Python id" AS python_id,
  arg."Python parent id" AS python_parent_id,
  arg."Python module id" AS module_id,
  coalesce(arg."Input Dims", old_arg."Input dims") AS shapes,
  arg."Input type" AS dtypes,
  flow_id,
  end_id,
  args,
  CASE
    -- A number is kept as its text, a string as itself: where that loses the JSON type, `extra` has it.
    WHEN starts_with(pid_json, '"') = (TRY_CAST(pid AS BIGINT)::VARCHAR IS NOT DISTINCT FROM pid)
      OR starts_with(tid_json, '"') = (TRY_CAST(tid AS BIGINT)::VARCHAR IS NOT DISTINCT FROM tid)
      OR starts_with(id_json, '"') = (TRY_CAST(flow_id AS BIGINT)::VARCHAR IS NOT DISTINCT FROM flow_id) THEN (
      '{' || concat_ws(
        ', ',
        CASE WHEN starts_with(pid_json, '"') = (TRY_CAST(pid AS BIGINT)::VARCHAR IS NOT DISTINCT FROM pid) THEN '"pid": ' || pid_json END,
        CASE WHEN starts_with(tid_json, '"') = (TRY_CAST(tid AS BIGINT)::VARCHAR IS NOT DISTINCT FROM tid) THEN '"tid": ' || tid_json END,
        CASE WHEN starts_with(id_json, '"') = (TRY_CAST(flow_id AS BIGINT)::VARCHAR IS NOT DISTINCT FROM flow_id) THEN '"id": ' || id_json END,
        substr(extra, 2, length(extra) - 2)
      ) || '}'
    )::JSON
    ELSE extra
  END AS extra
FROM timed
