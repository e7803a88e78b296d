-- /// tw
-- kind     = "analysis"
-- name     = "annotation_breakdown"
-- version  = 1
-- summary  = "Count and duration statistics of each annotation, on the host or as the profiler's copy on a GPU."
-- requires = ["annotations@1"]
-- grain    = ["run_id", "rank", "on_gpu", "device", "name"]
-- per      = "window"
-- order    = ["run_id", "rank", "on_gpu", "device", "-sum_ns", "name"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank; ranks without annotations have no rows." }
-- on_gpu   = { type = "BOOLEAN", doc = "True for the profiler's copies on a GPU: each from the first to the last kernel launched inside, including gaps." }
-- device   = { type = "BIGINT", unit = "id", signed = true, null = true, doc = "The device of the copies, -1 if unknown; null on the host." }
-- name     = { type = "VARCHAR", null = true, doc = "Annotation name." }
-- count    = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Number of annotations with this name." }
-- sum_ns   = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of durations (overlaps counted multiple times: nested, on several threads or streams)." }
-- union_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time with at least one of them open, on any thread or stream." }
-- min_ns   = { type = "BIGINT", unit = "ns", aggregate = "min", better = "lower", doc = "Minimum duration." }
-- p50_ns   = { type = "BIGINT", unit = "ns", better = "lower", doc = "Median duration (lower of the two middle values)." }
-- max_ns   = { type = "BIGINT", unit = "ns", aggregate = "max", better = "lower", doc = "Maximum duration." }
-- mean_ns  = { type = "DOUBLE", unit = "ns", aggregate = "sum_ns/count", better = "lower", doc = "Mean duration: sum_ns / count." }
-- std_ns   = { type = "DOUBLE", unit = "ns", better = "lower", null = true, doc = "Sample standard deviation (n - 1); null for a single annotation." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  annotation AS (
    SELECT
      run_id,
      rank,
      event_id,
      on_gpu,
      CASE WHEN on_gpu THEN coalesce(device, -1) END AS device,
      name,
      ts_ns,
      ts_ns + dur_ns AS end_ns,
      dur_ns
    FROM annotations
  ),
  behind AS (
    SELECT
      run_id,
      rank,
      on_gpu,
      device,
      name,
      dur_ns,
      end_ns,
      -- Latest end of earlier annotations of this name: time up to here is already counted.
      greatest(ts_ns, coalesce(max(end_ns) OVER earlier, ts_ns)) AS fresh_ns
    FROM annotation
    WINDOW earlier AS (
      PARTITION BY run_id, rank, on_gpu, device, name
      ORDER BY ts_ns, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  )
SELECT
  run_id,
  rank,
  on_gpu,
  device,
  name,
  count(*) AS count,
  sum(dur_ns)::BIGINT AS sum_ns,
  sum(greatest(end_ns - fresh_ns, 0))::BIGINT AS union_ns,
  min(dur_ns) AS min_ns,
  quantile_disc(dur_ns, 0.5) AS p50_ns,
  max(dur_ns) AS max_ns,
  sum_ns / count AS mean_ns,
  sqrt(
    (count * sum(dur_ns::HUGEINT * dur_ns)::HUGEINT - sum_ns::HUGEINT * sum_ns) / nullif(count * (count - 1), 0)
  ) AS std_ns
FROM behind
GROUP BY run_id, rank, on_gpu, device, name
