-- /// tw
-- kind     = "table"
-- name     = "syncs"
-- version  = 1
-- summary  = "A wait of the host or of a stream that the profiler recorded."
-- requires = ["events@1", "calls@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "event_id"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- event_id            = { type = "BIGINT", unit = "id", doc = "The row." }
-- kind                = { type = "VARCHAR", null = true, doc = "What waits: Context Sync, Stream Sync, Event Sync, Stream Wait Event, …." }
-- device              = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device." }
-- stream              = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream that waits or is waited for; -1 where all are meant." }
-- ts_ns               = { type = "BIGINT", signed = true, unit = "ts", doc = "Start." }
-- dur_ns              = { type = "BIGINT", unit = "ns", doc = "Length." }
-- correlation         = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Id shared with the host call." }
-- runtime_id          = { type = "BIGINT", null = true, unit = "id", doc = "The host call." }
-- wait_on_stream      = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream on which the event that is waited for was recorded." }
-- wait_on_event       = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The event that is waited for." }
-- wait_on_correlation = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "Correlation of the call that recorded this event." }
-- step                = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step that holds its start." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  sync AS (
    SELECT
      run_id,
      rank,
      event_id,
      name,
      device,
      stream,
      ts_ns,
      dur_ns,
      correlation,
      step,
      json_transform(
        args,
        '{"cuda_sync_kind": "VARCHAR", "wait_on_stream": "BIGINT", "wait_on_cuda_event_id": "BIGINT",
          "wait_on_cuda_event_record_corr_id": "BIGINT"}'
      ) AS arg
    FROM events
    WHERE category = 'cuda_sync' AND ph IN ('X', 'B') AND dur_ns IS NOT NULL
  ),
  first_call AS (
    SELECT correlation, arg_min(event_id, (ts_ns, event_id)) AS event_id
    FROM calls
    WHERE correlation > 0
    GROUP BY correlation
  )
SELECT
  sync.run_id,
  sync.rank,
  sync.event_id,
  coalesce(sync.arg.cuda_sync_kind, sync.name) AS kind,
  sync.device,
  sync.stream,
  sync.ts_ns,
  sync.dur_ns,
  sync.correlation,
  first_call.event_id AS runtime_id,
  sync.arg.wait_on_stream,
  sync.arg.wait_on_cuda_event_id AS wait_on_event,
  sync.arg.wait_on_cuda_event_record_corr_id AS wait_on_correlation,
  sync.step
FROM sync
LEFT JOIN first_call ON first_call.correlation = sync.correlation
