-- /// tw
-- kind     = "analysis"
-- name     = "cupti_counters"
-- version  = 1
-- summary  = "Hardware counters of each kernel, measured by the CUPTI range profiler, with the operators that launched it."
-- requires = ["events@1", "runtime@1"]
-- needs    = ["kernel_counters"]
-- grain    = ["run_id", "rank", "event_id", "counter"]
-- order    = ["run_id", "rank", "position", "counter"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- event_id   = { type = "BIGINT", unit = "id", doc = "The profiler range: one kernel." }
-- counter    = { type = "VARCHAR", doc = "Counter name." }
-- value      = { type = "DOUBLE", null = true, doc = "Counter value; null if the trace has no number." }
-- position   = { type = "BIGINT", unit = "count", doc = "Position of the kernel among the rank's ranges, by start, then position in the file." }
-- name       = { type = "VARCHAR", null = true, doc = "Kernel name; the profiler writes __missing__ if it lost the name." }
-- runtime_id = { type = "BIGINT", unit = "id", null = true, doc = "The host call that launched it. Ranges have no correlation ID and no real times: the n-th range is matched with the n-th call that launches a kernel, by start." }
-- op_id      = { type = "BIGINT", unit = "id", null = true, doc = "The innermost operator enclosing that call." }
-- op         = { type = "VARCHAR", null = true, doc = "Name of that operator." }
-- top_op     = { type = "VARCHAR", null = true, doc = "Name of the outermost operator enclosing the call." }
-- op_stack   = { type = "VARCHAR[]", null = true, doc = "Names of the operators enclosing the call, outermost first; null if there are none." }
-- reason     = { type = "VARCHAR", null = true, doc = "Why the call is unknown: the rank's numbers of ranges and launches differ (both are given), or there are ranges of several devices, whose order does not identify the launch." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  measured AS (
    SELECT
      run_id,
      rank,
      event_id,
      name,
      args,
      row_number() OVER (PARTITION BY run_id, rank ORDER BY ts_ns, event_id) AS position,
      count(*) OVER (PARTITION BY run_id, rank) AS ranges,
      min(pid) OVER (PARTITION BY run_id, rank) < max(pid) OVER (PARTITION BY run_id, rank) AS several_devices
    FROM events
    WHERE category = 'cuda_profiler_range'
  ),
  outermost AS (
    -- A driver call inside a runtime call shares its correlation ID: one launch.
    SELECT
      run_id,
      rank,
      arg_min(event_id, (ts_ns, -dur_ns, event_id)) AS runtime_id,
      arg_min_null(op_id, (ts_ns, -dur_ns, event_id)) AS op_id,
      min(ts_ns) AS ts_ns
    FROM runtime
    WHERE regexp_matches(name, '(?i)launch.*kernel')
    GROUP BY run_id, rank, pid, tid, CASE WHEN correlation > 0 THEN correlation ELSE -event_id END
  ),
  launched AS (
    SELECT
      run_id,
      rank,
      runtime_id,
      op_id,
      row_number() OVER (PARTITION BY run_id, rank ORDER BY ts_ns, runtime_id) AS position
    FROM outermost
  ),
  ranked AS (
    SELECT
      measured.run_id,
      measured.rank,
      measured.event_id,
      measured.position,
      CASE
        WHEN measured.several_devices THEN 'ranges of several devices'
        WHEN coalesce(total.launches, 0) <> measured.ranges
          THEN measured.ranges || ' ranges, ' || coalesce(total.launches, 0) || ' launches'
      END AS reason
    FROM measured
    LEFT JOIN (SELECT run_id, rank, count(*) AS launches FROM outermost GROUP BY run_id, rank) AS total
      ON total.run_id = measured.run_id AND total.rank = measured.rank
  ),
  paired AS (
    SELECT
      ranked.run_id,
      ranked.rank,
      ranked.event_id,
      ranked.reason,
      launched.runtime_id,
      launched.op_id
    FROM ranked
    LEFT JOIN launched
      ON launched.run_id = ranked.run_id AND launched.rank = ranked.rank AND launched.position = ranked.position
      AND ranked.reason IS NULL
  ),
  around AS (
    SELECT paired.run_id, paired.rank, paired.event_id, paired.op_id AS frame_id, 0 AS height
    FROM paired
    WHERE paired.op_id IS NOT NULL
    UNION ALL
    SELECT around.run_id, around.rank, around.event_id, frame.parent_id AS frame_id, around.height + 1 AS height
    FROM around
    JOIN events AS frame
      ON frame.run_id = around.run_id AND frame.rank = around.rank AND frame.event_id = around.frame_id
    WHERE frame.parent_id IS NOT NULL
  ),
  stack AS (
    SELECT
      around.run_id,
      around.rank,
      around.event_id,
      list(frame.name ORDER BY around.height DESC) AS op_stack
    FROM around
    JOIN events AS frame
      ON frame.run_id = around.run_id AND frame.rank = around.rank AND frame.event_id = around.frame_id
    WHERE frame.category = 'cpu_op'
    GROUP BY around.run_id, around.rank, around.event_id
  ),
  counted AS (
    SELECT run_id, rank, event_id, name, position, args, unnest(json_keys(args)) AS counter
    FROM measured
  )
SELECT
  counted.run_id,
  counted.rank,
  counted.event_id,
  counted.counter,
  TRY_CAST(
    json_extract_string(counted.args, '/' || replace(replace(counted.counter, '~', '~0'), '/', '~1')) AS DOUBLE
  ) AS value,
  counted.position,
  counted.name,
  paired.runtime_id,
  paired.op_id,
  stack.op_stack[-1] AS op,
  stack.op_stack[1] AS top_op,
  stack.op_stack,
  paired.reason
FROM counted
JOIN paired USING (run_id, rank, event_id)
LEFT JOIN stack USING (run_id, rank, event_id)
