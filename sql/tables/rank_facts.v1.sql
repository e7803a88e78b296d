-- /// tw
-- kind      = "table"
-- name      = "rank_facts"
-- version   = 1
-- summary   = "What a rank holds: counts, windows, and the facts behind `needs`."
-- requires  = ["events@1", "header@1", "launches@1", "step_marks@1", "counters@1", "memory_events@1", "memory_timeline@1", "kernels@1", "annotations@1"]
-- grain     = ["run_id", "rank"]
-- order     = ["run_id", "rank"]
-- transient = true
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- base_time_ns    = { type = "BIGINT", unit = "ts", doc = "The base time that the file adds to its times; 0 where it has none." }
-- pid             = { type = "VARCHAR", null = true, doc = "The process that most host slices are of." }
-- start_ns        = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Start of the first slice, or of the memory timeline." }
-- end_ns          = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "End of the last slice, or of the memory timeline." }
-- gpu_start_ns    = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Start of the first GPU row." }
-- gpu_end_ns      = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "End of the last GPU row." }
-- events          = { type = "BIGINT", unit = "count", doc = "Elements of the event array." }
-- non_events      = { type = "BIGINT", unit = "count", doc = "Elements that are no event: no object, or one without phase, or without name and time. Rows of a memory timeline are none." }
-- gpu_rows        = { type = "BIGINT", unit = "count", doc = "GPU rows with usable times." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Profiler steps." }
-- gpu             = { type = "BOOLEAN", doc = "It has GPU rows." }
-- launches        = { type = "BOOLEAN", doc = "A GPU row is linked to its launch." }
-- shapes          = { type = "BOOLEAN", doc = "Operators carry the shapes of their inputs." }
-- stacks          = { type = "BOOLEAN", doc = "It has Python frames." }
-- modules         = { type = "BOOLEAN", doc = "It has nn.Module frames." }
-- memory_events   = { type = "BOOLEAN", doc = "It has allocations and frees." }
-- memory_timeline = { type = "BOOLEAN", doc = "It is a memory timeline." }
-- collective_args = { type = "BOOLEAN", doc = "A GPU row carries a collective's arguments." }
-- collectives     = { type = "BOOLEAN", doc = "It has collectives: communication on the GPU, or a host backend's annotations of it." }
-- counters        = { type = "BOOLEAN", doc = "It has counters." }
-- kernel_counters = { type = "BOOLEAN", doc = "It has hardware counters of single kernels (CUPTI ranges)." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  host_process AS (
    SELECT arg_max(pid, (slices, pid)) AS pid
    FROM (SELECT pid, count(*) AS slices FROM events WHERE pre IS NOT NULL GROUP BY pid) AS process
  ),
  device_row AS (
    SELECT
      count(*) AS gpu_rows,
      count(launches.runtime_id) AS linked,
      min(events.ts_ns) AS gpu_start_ns,
      max(events.ts_ns + events.dur_ns) AS gpu_end_ns,
      coalesce(bool_or(contains(events.args, '"Collective name"')), FALSE) AS collective_args
    FROM launches
    JOIN events ON events.event_id = launches.kernel_id
  ),
  counted AS (
    SELECT
      min(ts_ns) FILTER (ph IN ('X', 'B') AND dur_ns IS NOT NULL) AS start_ns,
      max(ts_ns + dur_ns) FILTER (ph IN ('X', 'B')) AS end_ns,
      count(*) AS events,
      count(*) FILTER (
        ph IS NULL
        OR name IS NULL AND ts_ns IS NULL AND ts_text IS NULL AND coalesce(NOT contains(extra, '"name"'), TRUE)
      ) AS non_events,
      coalesce(bool_or(shapes IS NOT NULL), FALSE) AS shapes,
      coalesce(bool_or(category = 'cuda_profiler_range'), FALSE) AS kernel_counters,
      coalesce(bool_or(category = 'python_function'), FALSE) AS stacks,
      coalesce(bool_or(category = 'python_function' AND starts_with(name, 'nn.Module: ')), FALSE) AS modules
    FROM events
  ),
  timeline AS (
    SELECT count(*) AS rows, min(ts_ns) AS start_ns, max(ts_ns) AS end_ns
    FROM memory_timeline
  ),
  told AS (
    SELECT 'steps' AS fact, count(DISTINCT step) AS rows
    FROM step_marks
    UNION ALL
    SELECT 'memory_events', count(*)
    FROM memory_events
    UNION ALL
    SELECT 'counters', count(*)
    FROM counters
    UNION ALL
    SELECT 'collectives', count(*)
    FROM kernels
    WHERE kind = 'communication'
    UNION ALL
    SELECT 'collectives', count(*)
    FROM annotations
    WHERE regexp_matches(name, '^(gloo|mpi):\w')
  ),
  -- One row of all: a subquery for each takes DuckDB longer to plan than all else of a small rank.
  found AS (
    SELECT
      max(rows) FILTER (fact = 'steps') AS steps,
      max(rows) FILTER (fact = 'memory_events') > 0 AS memory_events,
      max(rows) FILTER (fact = 'counters') > 0 AS counters,
      max(rows) FILTER (fact = 'collectives') > 0 AS collectives
    FROM told
  )
SELECT
  header.run_id,
  header.rank,
  header.base_ns AS base_time_ns,
  host_process.pid,
  coalesce(counted.start_ns, timeline.start_ns) AS start_ns,
  coalesce(counted.end_ns, timeline.end_ns) AS end_ns,
  device_row.gpu_start_ns,
  device_row.gpu_end_ns,
  counted.events,
  counted.non_events - timeline.rows AS non_events,
  device_row.gpu_rows,
  found.steps,
  device_row.gpu_rows > 0 AS gpu,
  device_row.linked > 0 AS launches,
  counted.shapes,
  counted.stacks,
  counted.modules,
  found.memory_events,
  timeline.rows > 0 AS memory_timeline,
  device_row.collective_args,
  found.collectives,
  found.counters,
  counted.kernel_counters
FROM header
CROSS JOIN counted
CROSS JOIN device_row
CROSS JOIN host_process
CROSS JOIN timeline
CROSS JOIN found
