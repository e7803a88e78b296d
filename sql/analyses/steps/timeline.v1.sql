-- /// tw
-- kind     = "analysis"
-- name     = "timeline"
-- version  = 1
-- summary  = "The slices of each stream and of each launching thread, of some steps or of the recording: the data for a timeline."
-- requires = ["kernels@1", "runtime@1", "events@1", "steps@1", "data_loading_rules@1"]
-- grain    = ["run_id", "rank", "lane", "track", "position"]
-- order    = ["run_id", "rank", "lane", "track", "position"]
--
-- [params]
-- only_steps = { type = "VARCHAR", doc = "Only slices that overlap the periods of these steps on their rank, such as 3,7; without it, the entire recording." }
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- lane     = { type = "VARCHAR", doc = "stream: GPU activities; thread: host slices of threads that launch GPU activities or, if the rank has no launches, of threads with operators or annotations." }
-- track    = { type = "VARCHAR", doc = "Device and stream (`0/7`), or process and thread (`12/34`)." }
-- position = { type = "BIGINT", unit = "id", doc = "Position in the track by start, starting at 1." }
-- start_ns = { type = "BIGINT", unit = "ts", signed = true, doc = "Start." }
-- dur_ns   = { type = "BIGINT", unit = "ns", doc = "Duration of the entire slice." }
-- category = { type = "VARCHAR", doc = "stream: compute, communication, memory or other; thread: annotation (outermost, without profiler steps), dataloader (loads data or waits for it, by `data_loading_rules`), operator (outermost), launch, blocking (a call that waits for the device) or call (another runtime call)." }
-- name     = { type = "VARCHAR", null = true, doc = "The GPU activity, operator, annotation or call." }
-- op_name  = { type = "VARCHAR", null = true, doc = "The innermost operator that launched the activity or contains the call." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The event." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  span AS (
    SELECT run_id, rank, period_start_ns AS from_ns, period_start_ns + period_ns AS to_ns
    FROM steps
    WHERE list_contains(string_split($only_steps, ','), step::VARCHAR)
  ),
  launching AS (
    SELECT run_id, rank, pid, tid
    FROM runtime
    WHERE is_launch
    GROUP BY run_id, rank, pid, tid
    UNION
    SELECT run_id, rank, pid, tid
    FROM events
    WHERE category IN ('cpu_op', 'user_annotation') AND NOT EXISTS (
      SELECT 1 FROM runtime WHERE runtime.is_launch AND runtime.run_id = events.run_id AND runtime.rank = events.rank
    )
    GROUP BY run_id, rank, pid, tid
  ),
  loading_name AS (
    SELECT name
    FROM (SELECT DISTINCT name FROM events WHERE category IN ('cpu_op', 'user_annotation')) AS each_name
    SEMI JOIN data_loading_rules ON regexp_matches(each_name.name, data_loading_rules.pattern)
  ),
  host_slice AS (
    SELECT
      events.run_id,
      events.rank,
      events.pid,
      events.tid,
      events.ts_ns,
      events.dur_ns,
      CASE
        WHEN loading_name.name IS NOT NULL THEN 'dataloader'
        WHEN events.category = 'cpu_op' THEN 'operator'
        ELSE 'annotation'
      END AS category,
      events.name,
      events.event_id,
      -- An enclosing slice of the same kind comes earlier in nesting order and ends later.
      max(events.ts_ns + events.dur_ns) OVER (
        PARTITION BY events.run_id, events.rank, events.pid, events.tid, events.category
        ORDER BY events.ts_ns, events.dur_ns DESC, events.event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS reached_ns
    FROM events
    SEMI JOIN launching USING (run_id, rank, pid, tid)
    LEFT JOIN loading_name USING (name)
    WHERE events.category IN ('cpu_op', 'user_annotation')
      AND events.dur_ns IS NOT NULL
      AND NOT starts_with(coalesce(events.name, ''), 'ProfilerStep')
      AND NOT contains(coalesce(events.name, ''), ' step_num=')
  ),
  slice AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      'stream' AS lane,
      kernels.device || '/' || kernels.stream AS track,
      kernels.ts_ns AS start_ns,
      kernels.dur_ns,
      CASE kernels.kind WHEN 'computation' THEN 'compute' ELSE kernels.kind END AS category,
      kernels.name,
      kernels.op_id,
      kernels.event_id
    FROM kernels
    UNION ALL
    SELECT run_id, rank, 'thread', pid || '/' || tid, ts_ns, dur_ns, category, name, NULL, event_id
    FROM host_slice
    WHERE reached_ns IS NULL OR ts_ns >= reached_ns
    UNION ALL
    SELECT
      runtime.run_id,
      runtime.rank,
      'thread',
      runtime.pid || '/' || runtime.tid,
      runtime.ts_ns,
      runtime.dur_ns,
      CASE WHEN runtime.is_sync THEN 'blocking' WHEN runtime.is_launch THEN 'launch' ELSE 'call' END,
      runtime.name,
      runtime.op_id,
      runtime.event_id
    FROM runtime
    SEMI JOIN launching USING (run_id, rank, pid, tid)
  )
SELECT
  slice.run_id,
  slice.rank,
  slice.lane,
  slice.track,
  row_number() OVER (
    PARTITION BY slice.run_id, slice.rank, slice.lane, slice.track
    ORDER BY slice.start_ns, slice.dur_ns DESC, slice.event_id
  ) AS position,
  slice.start_ns,
  slice.dur_ns,
  slice.category,
  slice.name,
  operator.name AS op_name,
  slice.event_id
FROM slice
LEFT JOIN events AS operator
  ON operator.run_id = slice.run_id AND operator.rank = slice.rank AND operator.event_id = slice.op_id
WHERE $only_steps IS NULL OR EXISTS (
  SELECT 1
  FROM span
  WHERE span.run_id = slice.run_id
    AND span.rank = slice.rank
    AND slice.start_ns < span.to_ns
    AND slice.start_ns + slice.dur_ns > span.from_ns
)
