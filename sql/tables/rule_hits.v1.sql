-- /// tw
-- kind      = "table"
-- name      = "rule_hits"
-- version   = 1
-- summary   = "A row that falls under a rule of `data_quality`."
-- requires  = ["events@1", "categories@1", "launches@1", "correlations@1", "calls@1", "call_rules@1", "kernels@1", "flows@1", "memory_timeline@1"]
-- grain     = ["run_id", "rank", "rule", "event_id"]
-- order     = ["run_id", "rank", "rule", "event_id"]
-- transient = true
--
-- [params]
-- most_block_threads = { type = "BIGINT", default = 1024, unit = "count", min = 1, doc = "The most threads that a block can have." }
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", doc = "The rank." }
-- rule        = { type = "VARCHAR", doc = "The rule's name." }
-- event_id    = { type = "BIGINT", unit = "id", doc = "The row." }
-- ns_affected = { type = "BIGINT", null = true, unit = "ns", doc = "Time that it concerns." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  slice AS (
    SELECT event_id, ph, category, name, pid, tid, ts_ns, dur_ns, ts_text, dur_text
    FROM events
    WHERE ph IN ('X', 'B')
  ),
  twin AS (
    -- Numbers first: few slices share start and length, so few texts are compared.
    SELECT slice.event_id, slice.dur_ns, slice.category, slice.name, slice.pid, slice.tid, slice.ts_ns
    FROM slice
    JOIN (
      SELECT ts_ns, dur_ns FROM slice GROUP BY ts_ns, dur_ns HAVING count(*) > 1
    ) AS meeting ON meeting.ts_ns = slice.ts_ns AND meeting.dur_ns = slice.dur_ns
  ),
  call_of_id AS (
    SELECT
      event_id,
      correlation,
      end_ns,
      max(end_ns) OVER (
        PARTITION BY correlation ORDER BY ts_ns, end_ns DESC, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS earlier_end_ns
    FROM calls
    WHERE correlation > 0
  ),
  stream_row AS (
    SELECT
      event_id,
      ts_ns,
      dur_ns,
      max(ts_ns + dur_ns) OVER (
        PARTITION BY device, stream ORDER BY ts_ns, dur_ns, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS earlier_end_ns
    FROM kernels
  ),
  launched AS (
    -- Ids of GPU rows: a driver's call inside the runtime's that launched them has the same id.
    SELECT DISTINCT correlation
    FROM kernels
    WHERE correlation > 0 AND launch_state = 'linked'
  ),
  shared_device AS (
    SELECT device, min(pid) AS first_pid
    FROM events
    WHERE event_id IN (SELECT kernel_id FROM launches)
    GROUP BY device
    HAVING min(pid) <> max(pid)
  ),
  launch_name AS (
    SELECT DISTINCT call.name
    FROM (SELECT DISTINCT name FROM calls) AS call
    JOIN call_rules ON call_rules.action = 'launch' AND regexp_matches(call.name, call_rules.pattern)
  ),
  finding AS (
    SELECT 'non_event' AS rule, event_id, NULL::BIGINT AS ns_affected
    FROM events
    WHERE
      (
        ph IS NULL
        OR name IS NULL AND ts_ns IS NULL AND ts_text IS NULL AND coalesce(NOT contains(extra, '"name"'), TRUE)
      )
      AND event_id NOT IN (SELECT event_id FROM memory_timeline)
    UNION ALL
    SELECT 'unknown_category', event_id, dur_ns
    FROM events
    WHERE raw_category IS NOT NULL AND raw_category NOT IN (SELECT raw_category FROM categories)
    UNION ALL
    SELECT 'duplicate_slice', event_id, dur_ns
    FROM twin
    QUALIFY row_number() OVER (
      PARTITION BY ts_ns, dur_ns, pid, tid, name, category ORDER BY event_id
    ) > 1
    UNION ALL
    SELECT 'negative_duration', event_id, NULL
    FROM slice
    WHERE dur_ns IS NULL AND starts_with(dur_text, '-')
    UNION ALL
    SELECT 'epoch_zero', event_id, NULL
    FROM slice
    WHERE ts_ns IS NULL AND TRY_CAST(ts_text AS DOUBLE) = 0
    UNION ALL
    SELECT 'unusable_time', event_id, NULL
    FROM slice
    WHERE ph = 'X' AND dur_ns IS NULL
      AND (dur_text IS NULL OR NOT starts_with(dur_text, '-'))
      AND (ts_ns IS NOT NULL OR coalesce(TRY_CAST(ts_text AS DOUBLE) <> 0, TRUE))
    UNION ALL
    SELECT 'open_bracket', event_id, NULL
    FROM events
    WHERE ph = 'B' AND end_id IS NULL
      OR ph = 'E' AND event_id NOT IN (SELECT end_id FROM events WHERE end_id IS NOT NULL)
    UNION ALL
    SELECT 'crossing_slice', child.event_id, child.ts_ns + child.dur_ns - parent.ts_ns - parent.dur_ns
    FROM events AS child
    JOIN events AS parent ON parent.event_id = child.parent_id
    WHERE child.crosses
    UNION ALL
    SELECT 'dangling_frame', event_id, dur_ns
    FROM events
    WHERE python_parent_id IS NOT NULL
      AND python_parent_id NOT IN (SELECT python_id FROM events WHERE python_id IS NOT NULL)
    UNION ALL
    SELECT 'flow_without_start', event_id, NULL
    FROM flows
    WHERE start_id IS NULL
    UNION ALL
    SELECT CASE launch_state WHEN 'before_window' THEN 'before_window' ELSE 'missing_launch' END, event_id, dur_ns
    FROM kernels
    WHERE launch_state <> 'linked'
    UNION ALL
    SELECT 'launch_by_flow', kernels.event_id, kernels.dur_ns
    FROM kernels
    JOIN launches ON launches.kernel_id = kernels.event_id
    WHERE launches.via = 'flow'
    UNION ALL
    SELECT 'unknown_launch', event_id, end_ns - ts_ns
    FROM calls
    WHERE event_id IN (SELECT runtime_id FROM launches WHERE runtime_id IS NOT NULL)
      AND name IS NOT NULL AND name NOT IN (SELECT name FROM launch_name)
    UNION ALL
    SELECT 'launch_without_gpu_row', calls.event_id, calls.end_ns - calls.ts_ns
    FROM calls
    ANTI JOIN launches ON launches.runtime_id = calls.event_id
    ANTI JOIN launched ON launched.correlation = calls.correlation
    WHERE calls.name IN (SELECT name FROM launch_name)
    UNION ALL
    SELECT 'many_rows_per_launch', kernels.event_id, kernels.dur_ns
    FROM kernels
    JOIN launches ON launches.kernel_id = kernels.event_id
    WHERE NOT launches.is_graph
    QUALIFY row_number() OVER (PARTITION BY kernels.runtime_id ORDER BY kernels.ts_ns, kernels.event_id) > 1
    UNION ALL
    SELECT 'correlation_reused', event_id, NULL
    FROM call_of_id
    WHERE earlier_end_ns < end_ns
    UNION ALL
    SELECT 'start_before_launch', kernel_id, -call_to_start_ns
    FROM correlations
    WHERE call_to_start_ns < 0
    UNION ALL
    SELECT 'stream_overlap', event_id, least(earlier_end_ns, ts_ns + dur_ns) - ts_ns
    FROM stream_row
    WHERE earlier_end_ns > ts_ns
    UNION ALL
    SELECT 'several_processes', device_row.event_id, device_row.dur_ns
    FROM events AS device_row
    JOIN shared_device
      ON shared_device.device = device_row.device AND shared_device.first_pid <> device_row.pid
    WHERE device_row.event_id IN (SELECT kernel_id FROM launches)
    UNION ALL
    SELECT 'impossible_value', event_id, dur_ns
    FROM kernels
    WHERE block_x * block_y * block_z NOT BETWEEN 1 AND $most_block_threads
  )
SELECT
  events.run_id,
  events.rank,
  finding.rule,
  finding.event_id,
  finding.ns_affected::BIGINT AS ns_affected
FROM finding
JOIN events ON events.event_id = finding.event_id
