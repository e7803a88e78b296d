-- /// tw
-- kind     = "table"
-- name     = "steps"
-- version  = 1
-- summary  = "A profiler step of a rank: when the host ran it, when the GPU did, and how long until the next was done."
-- requires = ["step_marks@1", "events@1", "launches@1"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- step            = { type = "BIGINT", unit = "id", doc = "The step's number." }
-- event_id        = { type = "BIGINT", unit = "id", doc = "Its first mark on the host." }
-- host_start_ns   = { type = "BIGINT", signed = true, unit = "ts", doc = "Start of the mark." }
-- host_ns         = { type = "BIGINT", unit = "ns", doc = "Length of the mark." }
-- device_start_ns = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Start of the first GPU row that was launched in it." }
-- device_ns       = { type = "BIGINT", null = true, unit = "ns", doc = "From there to the end of the last GPU row that was launched in it; null without one." }
-- period_start_ns = { type = "BIGINT", signed = true, unit = "ts", doc = "End of the step before; of the first step its start on the host." }
-- period_ns       = { type = "BIGINT", unit = "ns", doc = "From there to its own end, that of its last GPU row (of its mark, without one): periods tile the window." }
-- partial         = { type = "BOOLEAN", doc = "Its host or device span touches the edge of the window, so the profiler may have cut it." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  mark AS (
    SELECT
      run_id,
      rank,
      step,
      arg_min(event_id, (start_ns, event_id)) AS event_id,
      min(start_ns) AS host_start_ns,
      max(end_ns) AS host_end_ns
    FROM step_marks
    GROUP BY run_id, rank, step
  ),
  device_row AS (
    SELECT step, ts_ns, ts_ns + dur_ns AS end_ns
    FROM events
    WHERE event_id IN (SELECT kernel_id FROM launches)
  ),
  device_span AS (
    SELECT step, min(ts_ns) AS device_start_ns, max(end_ns) AS device_end_ns
    FROM device_row
    GROUP BY step
  ),
  device_window AS (
    SELECT min(ts_ns) AS start_ns, max(end_ns) AS end_ns
    FROM device_row
  ),
  host_window AS (
    SELECT min(ts_ns) AS start_ns, max(ts_ns + dur_ns) AS end_ns
    FROM events
    WHERE pre IS NOT NULL
  ),
  spanned AS (
    SELECT
      mark.run_id,
      mark.rank,
      mark.step,
      mark.event_id,
      mark.host_start_ns,
      mark.host_end_ns,
      device_span.device_start_ns,
      device_span.device_end_ns,
      -- A side stream may outlast the next step: a step ends no earlier than the one before.
      greatest(
        mark.host_start_ns,
        max(coalesce(device_span.device_end_ns, mark.host_end_ns)) OVER (
          ORDER BY mark.host_start_ns, mark.step ROWS UNBOUNDED PRECEDING
        )
      ) AS done_ns,
      mark.host_start_ns <= host_window.start_ns
        OR mark.host_end_ns >= host_window.end_ns
        OR coalesce(device_span.device_start_ns <= device_window.start_ns, FALSE)
        OR coalesce(device_span.device_end_ns >= device_window.end_ns, FALSE) AS partial
    FROM mark
    CROSS JOIN host_window
    CROSS JOIN device_window
    LEFT JOIN device_span ON device_span.step = mark.step
  ),
  started AS (
    SELECT
      run_id,
      rank,
      step,
      event_id,
      host_start_ns,
      host_end_ns,
      device_start_ns,
      device_end_ns,
      done_ns,
      coalesce(lag(done_ns) OVER (ORDER BY host_start_ns, step), host_start_ns) AS period_start_ns,
      partial
    FROM spanned
  )
SELECT
  run_id,
  rank,
  step,
  event_id,
  host_start_ns,
  host_end_ns - host_start_ns AS host_ns,
  device_start_ns,
  device_end_ns - device_start_ns AS device_ns,
  period_start_ns,
  done_ns - period_start_ns AS period_ns,
  partial
FROM started
