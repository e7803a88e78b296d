-- /// tw
-- kind     = "analysis"
-- name     = "kernel_summary"
-- version  = 1
-- summary  = "Count and duration statistics of each kernel, memcpy and memset per device."
-- requires = ["kernels@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "kind", "name"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "-sum_ns", "kind", "name"]
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- device  = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- kind    = { type = "VARCHAR", doc = "computation, communication, memory or other." }
-- name    = { type = "VARCHAR", null = true, doc = "Full name." }
-- count   = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Number of GPU activities with this name." }
-- sum_ns  = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of durations (overlaps counted multiple times)." }
-- min_ns  = { type = "BIGINT", unit = "ns", aggregate = "min", better = "lower", doc = "Minimum duration." }
-- p50_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "Median duration (lower of the two middle values)." }
-- p95_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "95th percentile of the durations; always a measured duration." }
-- p99_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "99th percentile of the durations; always a measured duration." }
-- max_ns  = { type = "BIGINT", unit = "ns", aggregate = "max", better = "lower", doc = "Maximum duration." }
-- mean_ns = { type = "DOUBLE", unit = "ns", aggregate = "sum_ns/count", better = "lower", doc = "Mean duration: sum_ns / count." }
-- std_ns  = { type = "DOUBLE", unit = "ns", better = "lower", null = true, doc = "Sample standard deviation (n - 1); null for a single activity." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  kernel_group AS (
    SELECT
      run_id,
      rank,
      device,
      kind,
      name,
      count(*) AS count,
      sum(dur_ns)::BIGINT AS sum_ns,
      sum(dur_ns::HUGEINT * dur_ns)::HUGEINT AS sum_of_squares,
      min(dur_ns) AS min_ns,
      max(dur_ns) AS max_ns,
      quantile_disc(dur_ns, [0.5, 0.95, 0.99]) AS quantiles
    FROM kernels
    GROUP BY run_id, rank, device, kind, name
  )
SELECT
  run_id,
  rank,
  device,
  kind,
  name,
  count,
  sum_ns,
  min_ns,
  quantiles[1] AS p50_ns,
  quantiles[2] AS p95_ns,
  quantiles[3] AS p99_ns,
  max_ns,
  sum_ns / count AS mean_ns,
  sqrt(
    (count * sum_of_squares - sum_ns::HUGEINT * sum_ns) / nullif(count * (count - 1), 0)
  ) AS std_ns
FROM kernel_group
