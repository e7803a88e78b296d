-- /// tw
-- kind     = "table"
-- name     = "events"
-- version  = 1
-- summary  = "Every element of the file's event array, whatever it is, with all that it holds."
-- requires = ["parsed@1", "nesting@1", "launches@1", "step_spans@1", "categories@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
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
-- step             = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step: of a host row the one whose span holds its start, of a GPU row that of its launch." }
-- depth            = { type = "BIGINT", null = true, unit = "depth", doc = "Depth of a host slice on its thread, 1 for a root; null for what does not nest." }
-- parent_id        = { type = "BIGINT", null = true, unit = "id", doc = "The slice around it on its thread; annotations nest among themselves." }
-- pre              = { type = "BIGINT", null = true, unit = "id", doc = "Place of a host slice in the order of nesting over the whole rank, from 1." }
-- post             = { type = "BIGINT", null = true, unit = "id", doc = "`pre` of its last descendant: descendants have pre < theirs <= post." }
-- crosses          = { type = "BOOLEAN", null = true, doc = "It ends after its parent; null for what does not nest." }
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
  placed AS (
    -- The time that decides about the step: a GPU row has that of its launch.
    SELECT kernel_id AS event_id, call_ts_ns AS stepped_ns
    FROM launches
    WHERE call_ts_ns IS NOT NULL
    UNION ALL
    SELECT event_id, ts_ns AS stepped_ns
    FROM parsed
    WHERE ts_ns IS NOT NULL AND ph IN ('X', 'B', 'E', 'i', 'I', 'C', 'P', 'R')
      AND coalesce(category, '') NOT IN (
        SELECT category FROM categories WHERE role IN ('device', 'device_annotation', 'device_range', 'device_event', 'span')
      )
  ),
  stepped AS (
    SELECT placed.event_id, step_spans.step
    FROM placed
    ASOF JOIN step_spans ON step_spans.start_ns <= placed.stepped_ns
    WHERE placed.stepped_ns < step_spans.end_ns
  )
SELECT
  parsed.run_id,
  parsed.rank,
  parsed.event_id,
  parsed.ph,
  parsed.category,
  parsed.raw_category,
  parsed.name,
  parsed.pid,
  parsed.tid,
  parsed.ts_ns,
  parsed.dur_ns,
  parsed.ts_text,
  parsed.dur_text,
  stepped.step,
  nesting.depth,
  nesting.parent_id,
  nesting.pre,
  nesting.post,
  nesting.crosses,
  parsed.correlation,
  parsed.external_id,
  parsed.stream,
  parsed.device,
  parsed.bytes,
  parsed.sequence_number,
  parsed.forward_thread,
  parsed.python_id,
  parsed.python_parent_id,
  parsed.module_id,
  parsed.shapes,
  parsed.dtypes,
  parsed.flow_id,
  parsed.end_id,
  parsed.args,
  parsed.extra
FROM parsed
LEFT JOIN nesting ON nesting.event_id = parsed.event_id
LEFT JOIN stepped ON stepped.event_id = parsed.event_id
