-- /// tw
-- kind     = "analysis"
-- name     = "kernel_summary"
-- version  = 1
-- summary  = "How often each kernel, copy and set ran on a device, and how long it took."
-- requires = ["kernels@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "kind", "name"]
-- order    = ["run_id", "rank", "device", "-sum_ns", "kind", "name"]
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- device  = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 where the trace does not say." }
-- kind    = { type = "VARCHAR", doc = "computation, communication, memory or other." }
-- name    = { type = "VARCHAR", null = true, doc = "The name in full." }
-- count   = { type = "BIGINT", unit = "count", fold = "sum", better = "lower", doc = "GPU rows of that name." }
-- sum_ns  = { type = "BIGINT", unit = "ns", fold = "sum", better = "lower", doc = "Their durations added up, also where they overlap." }
-- min_ns  = { type = "BIGINT", unit = "ns", fold = "min", better = "lower", doc = "The shortest." }
-- p50_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "Half of them took no longer; a duration that was measured, never one in between." }
-- p95_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "95 of 100 took no longer." }
-- p99_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "99 of 100 took no longer." }
-- max_ns  = { type = "BIGINT", unit = "ns", fold = "max", better = "lower", doc = "The longest." }
-- mean_ns = { type = "DOUBLE", unit = "ns", fold = "sum_ns/count", better = "lower", doc = "sum_ns over count." }
-- std_ns  = { type = "DOUBLE", unit = "ns", better = "lower", null = true, doc = "Standard deviation of the sample (n - 1); null for a single row." }
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
