-- /// tw
-- kind     = "view"
-- name     = "device_segments"
-- version  = 1
-- summary  = "A rank's time split into segments, each within one step's period and attributed to one GPU activity or one idle cause."
-- requires = ["kernels@1", "runtime@1", "steps@1", "events@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank; ranks without GPU activity have no segments. Devices are combined: a rank is busy while any of its devices is busy." }
-- start_ns   = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the segment. The first one starts with the first GPU activity or the first step's period, whichever is earlier." }
-- segment_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the segment; always positive. Segments are contiguous; the last one ends with the last GPU activity or the last period, whichever is later." }
-- step       = { type = "BIGINT", unit = "id", null = true, doc = "The step whose period contains the segment; null before the first period and after the last." }
-- kind       = { type = "VARCHAR", doc = "computation, communication, memory or other: the first of these that runs, on any stream; idle if nothing runs." }
-- kernel_id  = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the GPU activity that the segment is attributed to: of the running activities of its kind, the one that started first; on ties the first in the file. Null if idle." }
-- cause      = { type = "VARCHAR", null = true, doc = "Idle cause; null if busy. If the next activity was launched after the gap began: sync, if the launching thread was in a blocking call when the gap began (one that synchronizes, or one that copies and returns after the copy), for the duration of that call, because without it the thread would have continued that much earlier; then dataloader, while that thread waits for data; otherwise host. ready: the next activity was launched at or before the start of the gap; unknown: its launch is missing from the trace; outside: before the first GPU activity or after the last." }
-- wait_id    = { type = "BIGINT", unit = "id", null = true, doc = "The blocking call that the launching thread was in when the gap began; null unless the cause is sync." }
-- after_id   = { type = "BIGINT", unit = "id", null = true, doc = "event_id of the GPU activity that ends the gap; null if busy or outside." }
-- gap_ns     = { type = "BIGINT", unit = "ns", null = true, doc = "Duration of the entire gap that contains the segment; null if busy or outside." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  gpu_row AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      kernels.activity,
      kernels.kind,
      kernels.stream,
      kernels.ts_ns,
      kernels.ts_ns + kernels.dur_ns AS end_ns,
      kernels.launch_state,
      runtime.event_id AS call_id,
      runtime.pid,
      runtime.tid,
      runtime.ts_ns AS call_ns,
      runtime.ts_ns + runtime.dur_ns AS call_end_ns
    FROM kernels
    LEFT JOIN runtime
      ON runtime.run_id = kernels.run_id
      AND runtime.rank = kernels.rank
      AND runtime.event_id = kernels.runtime_id
  ),
  reached AS (
    SELECT
      run_id,
      rank,
      event_id,
      kind,
      ts_ns,
      end_ns,
      launch_state,
      pid,
      tid,
      call_ns,
      max(end_ns) OVER earlier AS reached_ns,
      greatest(ts_ns, coalesce(max(end_ns) OVER earlier_of_kind, ts_ns)) AS own_ns
    FROM gpu_row
    WINDOW
      earlier AS (
        PARTITION BY run_id, rank
        ORDER BY ts_ns, end_ns, call_ns, stream, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ),
      earlier_of_kind AS (
        PARTITION BY run_id, rank, kind
        ORDER BY ts_ns, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      )
  ),
  gap AS (
    SELECT
      run_id,
      rank,
      event_id AS after_id,
      pid,
      tid,
      reached_ns AS start_ns,
      ts_ns AS end_ns,
      CASE
        WHEN call_ns > reached_ns THEN 'host'
        WHEN launch_state = 'missing' THEN 'unknown'
        ELSE 'ready'
      END AS cause
    FROM reached
    WHERE ts_ns > reached_ns
  ),
  wait AS (
    -- Calls in which a host thread waits for a device.
    SELECT run_id, rank, pid, tid, event_id, ts_ns AS start_ns, ts_ns + dur_ns AS end_ns
    FROM runtime
    WHERE is_sync
    UNION ALL
    SELECT run_id, rank, pid, tid, call_id, call_ns, call_end_ns
    FROM gpu_row
    WHERE activity = 'memcpy' AND end_ns <= call_end_ns
  ),
  wait_or_gap AS (
    SELECT run_id, rank, pid, tid, event_id, start_ns AS at_ns, 0 AS turn, start_ns, end_ns
    FROM wait
    UNION ALL
    SELECT run_id, rank, pid, tid, after_id, start_ns, 1, NULL, NULL
    FROM gap
    WHERE cause = 'host'
  ),
  late AS (
    -- Each gap that waits for a launch, with the blocking call of its thread that ends last.
    SELECT
      run_id,
      rank,
      pid,
      tid,
      event_id AS after_id,
      at_ns,
      turn,
      max(end_ns) OVER so_far AS wait_end_ns,
      arg_max(start_ns, (end_ns, -start_ns)) FILTER (end_ns IS NOT NULL) OVER so_far AS wait_start_ns,
      arg_max(event_id, (end_ns, -start_ns)) FILTER (end_ns IS NOT NULL) OVER so_far AS wait_id
    FROM wait_or_gap
    WINDOW so_far AS (
      PARTITION BY run_id, rank, pid, tid
      ORDER BY at_ns, turn, event_id
      ROWS UNBOUNDED PRECEDING
    )
  ),
  late_gap AS (
    SELECT
      gap.run_id,
      gap.rank,
      gap.after_id,
      gap.pid,
      gap.tid,
      gap.start_ns,
      gap.end_ns,
      late.wait_id,
      CASE
        WHEN late.wait_end_ns > gap.start_ns THEN gap.start_ns + (late.wait_end_ns - late.wait_start_ns)
        ELSE gap.start_ns
      END AS sync_end_ns
    FROM gap
    JOIN late
      ON late.run_id = gap.run_id
      AND late.rank = gap.rank
      AND late.after_id = gap.after_id
    WHERE gap.cause = 'host' AND late.turn = 1
  ),
  data AS (
    SELECT run_id, rank, pid, tid, event_id, ts_ns AS start_ns, ts_ns + dur_ns AS end_ns
    FROM events
    WHERE starts_with(name, 'enumerate(DataLoader)#') AND pre IS NOT NULL
  ),
  moment AS (
    -- Starts and ends of a thread's waits for data, and of gaps that wait for its launches. At one instant:
    -- first what starts or ends within a gap, then the end of a gap, then the start of the next.
    SELECT run_id, rank, pid, tid, event_id, 0 AS turn, start_ns AS at_ns, end_ns AS data_end_ns, NULL::BIGINT AS gap_id
    FROM data
    UNION ALL
    SELECT run_id, rank, pid, tid, event_id, 1, end_ns, NULL, NULL
    FROM data
    UNION ALL
    SELECT run_id, rank, pid, tid, after_id, 2, sync_end_ns, NULL, NULL
    FROM late_gap
    WHERE sync_end_ns < end_ns
    UNION ALL
    SELECT run_id, rank, pid, tid, after_id, 3, end_ns, NULL, -1
    FROM late_gap
    UNION ALL
    SELECT run_id, rank, pid, tid, after_id, 4, start_ns, NULL, after_id
    FROM late_gap
  ),
  late_numbered AS (
    SELECT
      run_id,
      rank,
      pid,
      tid,
      at_ns,
      data_end_ns,
      gap_id,
      row_number() OVER (PARTITION BY run_id, rank, pid, tid ORDER BY at_ns, turn, event_id) AS number
    FROM moment
  ),
  late_part AS (
    SELECT
      run_id,
      rank,
      at_ns AS start_ns,
      lead(at_ns) OVER so_far AS until_ns,
      ((max((number::HUGEINT << 64) + gap_id + 1) OVER so_far) & 18446744073709551615)::BIGINT - 1 AS after_id,
      max(data_end_ns) OVER so_far AS data_end_ns
    FROM late_numbered
    WINDOW so_far AS (PARTITION BY run_id, rank, pid, tid ORDER BY number ROWS UNBOUNDED PRECEDING)
  ),
  idle AS (
    SELECT
      late_part.run_id,
      late_part.rank,
      late_part.start_ns,
      CASE
        WHEN late_gap.sync_end_ns > late_part.start_ns THEN 'sync'
        WHEN late_part.data_end_ns > late_part.start_ns THEN 'dataloader'
        ELSE 'host'
      END AS cause,
      CASE WHEN late_gap.sync_end_ns > late_part.start_ns THEN late_gap.wait_id END AS wait_id,
      late_part.after_id,
      late_gap.end_ns - late_gap.start_ns AS gap_ns
    FROM late_part
    JOIN late_gap
      ON late_gap.run_id = late_part.run_id
      AND late_gap.rank = late_part.rank
      AND late_gap.after_id = late_part.after_id
    WHERE late_part.until_ns > late_part.start_ns
    UNION ALL
    SELECT run_id, rank, start_ns, cause, NULL, after_id, end_ns - start_ns
    FROM gap
    WHERE cause <> 'host'
  ),
  period AS (
    SELECT run_id, rank, step, period_start_ns, period_start_ns + period_ns AS end_ns
    FROM steps
    SEMI JOIN kernels ON kernels.run_id = steps.run_id AND kernels.rank = steps.rank
    WHERE period_ns > 0
  ),
  point AS (
    -- Ends (-1) and starts; a layer has at most one of each at an instant.
    SELECT run_id, rank, 1 AS turn, kind AS layer, own_ns AS at_ns, event_id AS owner_id
    FROM reached
    WHERE end_ns > own_ns
    UNION ALL
    SELECT run_id, rank, 0, kind, end_ns, -1
    FROM reached
    WHERE end_ns > own_ns
    UNION ALL
    SELECT run_id, rank, 1, 'step', period_start_ns, step
    FROM period
    UNION ALL
    SELECT run_id, rank, 0, 'step', max(end_ns), -1
    FROM period
    GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, rank, 1, 'idle', start_ns, start_ns
    FROM idle
    UNION ALL
    SELECT run_id, rank, 1, 'idle', max(end_ns), max(end_ns)
    FROM reached
    GROUP BY run_id, rank
  ),
  numbered AS (
    SELECT
      run_id,
      rank,
      at_ns,
      layer,
      owner_id,
      row_number() OVER (PARTITION BY run_id, rank ORDER BY at_ns, turn, layer, owner_id) AS number
    FROM point
  ),
  state AS (
    -- The last owner so far in each layer: the maximum of number and owner, packed into one number.
    SELECT
      run_id,
      rank,
      at_ns AS start_ns,
      lead(at_ns) OVER so_far AS end_ns,
      nullif(((max(CASE layer WHEN 'step' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS step,
      nullif(((max(CASE layer WHEN 'computation' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS computation_id,
      nullif(((max(CASE layer WHEN 'communication' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS communication_id,
      nullif(((max(CASE layer WHEN 'memory' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS memory_id,
      nullif(((max(CASE layer WHEN 'other' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS other_id,
      max(CASE layer WHEN 'idle' THEN owner_id END) OVER so_far AS idle_ns
    FROM numbered
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY number ROWS UNBOUNDED PRECEDING)
  ),
  segment AS (
    SELECT
      run_id,
      rank,
      start_ns,
      end_ns,
      step,
      CASE
        WHEN computation_id IS NOT NULL THEN 'computation'
        WHEN communication_id IS NOT NULL THEN 'communication'
        WHEN memory_id IS NOT NULL THEN 'memory'
        WHEN other_id IS NOT NULL THEN 'other'
        ELSE 'idle'
      END AS kind,
      coalesce(computation_id, communication_id, memory_id, other_id) AS kernel_id,
      CASE WHEN kernel_id IS NULL THEN idle_ns END AS idle_ns
    FROM state
    WHERE end_ns > start_ns
  )
SELECT
  segment.run_id,
  segment.rank,
  segment.start_ns,
  segment.end_ns - segment.start_ns AS segment_ns,
  segment.step,
  segment.kind,
  segment.kernel_id,
  CASE WHEN segment.kind = 'idle' THEN coalesce(idle.cause, 'outside') END AS cause,
  idle.wait_id,
  idle.after_id,
  idle.gap_ns
FROM segment
LEFT JOIN idle
  ON idle.run_id = segment.run_id
  AND idle.rank = segment.rank
  AND idle.start_ns = segment.idle_ns
