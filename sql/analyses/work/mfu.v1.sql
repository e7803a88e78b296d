-- /// tw
-- kind     = "analysis"
-- name     = "mfu"
-- version  = 1
-- summary  = "Model and hardware FLOP utilization (MFU, HFU) of each step: FLOP as a share of what the device can do in that time."
-- requires = ["work_coverage@1", "rank_work@1", "steps@1", "kernels@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [params]
-- peak_flop_per_ns = { type = "DOUBLE", unit = "flop_per_ns", doc = "Peak rate, instead of that of `device_specs`." }
-- min_coverage     = { type = "DOUBLE", unit = "ratio", default = 0.5, min = 0, max = 1, doc = "With a lower flop_coverage, mfu and hfu are null." }
--
-- [columns]
-- run_id            = { type = "VARCHAR", doc = "The run." }
-- rank              = { type = "INTEGER", doc = "The rank." }
-- step              = { type = "BIGINT", null = true, unit = "id", doc = "Step number; null for the entire GPU window (first start to last end of GPU activities)." }
-- period_ns         = { type = "BIGINT", unit = "ns", better = "lower", doc = "The period of the step, or the GPU window." }
-- model_flop        = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the model needs: no recomputation. Null if none is known." }
-- hardware_flop     = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the hardware does, with recomputation." }
-- mfu               = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Model FLOP utilization: model_flop / (period_ns × limit_flop_per_ns). FLOP of unknown operators are missing: a lower bound." }
-- hfu               = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Hardware FLOP utilization: hardware_flop / (period_ns × limit_flop_per_ns)." }
-- flop_covered_ns   = { type = "BIGINT", unit = "ns", doc = "Sum of the durations of computation in operators of known FLOP." }
-- flop_coverage     = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "flop_covered_ns as a share of the sum of the durations of all computation." }
-- peak_dtype        = { type = "VARCHAR", null = true, doc = "Type of the arithmetic of most FLOP of the rank, whose peak rate is used." }
-- limit_flop_per_ns = { type = "DOUBLE", null = true, unit = "flop_per_ns", doc = "That peak rate. `checked` in `device_specs` says whether the figure was compared with the vendor's documentation." }
-- dtype_known       = { type = "BOOLEAN", null = true, doc = "False if the type or its peak is not certain." }
-- reason            = { type = "VARCHAR", null = true, doc = "Why mfu is null." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  span AS (
    SELECT run_id, rank, step, period_ns
    FROM steps
    UNION ALL
    SELECT run_id, rank, NULL::BIGINT, (max(ts_ns + dur_ns) - min(ts_ns))::BIGINT
    FROM kernels
    GROUP BY run_id, rank
  ),
  worked AS (
    SELECT
      span.run_id,
      span.rank,
      span.step,
      span.period_ns,
      coverage.model_flop,
      coverage.hardware_flop,
      coalesce(coverage.covered_ns, 0) AS flop_covered_ns,
      coverage.flop_coverage,
      peak.peak_dtype,
      coalesce(nullif(greatest($peak_flop_per_ns, 0), 0), peak.limit_flop_per_ns) AS limit_flop_per_ns,
      peak.dtype_known,
      CASE
        WHEN coverage.flop_coverage IS NULL THEN 'no computation'
        WHEN coverage.model_flop IS NULL THEN 'no operator of known FLOP'
        WHEN coverage.flop_coverage < $min_coverage THEN format('FLOP known for {:.0f} % of computation time', floor(coverage.flop_coverage * 100))
        WHEN peak.peak_dtype IS NULL AND coverage.hardware_flop = 0 THEN 'no operator with FLOP'
        WHEN coalesce(nullif(greatest($peak_flop_per_ns, 0), 0), peak.limit_flop_per_ns) IS NULL THEN coalesce('no peak rate of ' || peak.device_name || ' is known', 'no device name was recorded, so no peak rate is known') || ' for ' || coalesce(peak.peak_dtype, 'an unknown type')
        WHEN span.period_ns = 0 THEN 'no duration'
      END AS reason
    FROM span
    LEFT JOIN work_coverage AS coverage
      ON coverage.run_id = span.run_id AND coverage.rank = span.rank AND coverage.step IS NOT DISTINCT FROM span.step
    LEFT JOIN rank_work AS peak ON peak.run_id = span.run_id AND peak.rank = span.rank
  )
SELECT
  run_id,
  rank,
  step,
  period_ns,
  model_flop,
  hardware_flop,
  CASE WHEN reason IS NULL THEN model_flop / (period_ns * limit_flop_per_ns) END AS mfu,
  CASE WHEN reason IS NULL THEN hardware_flop / (period_ns * limit_flop_per_ns) END AS hfu,
  flop_covered_ns,
  flop_coverage,
  peak_dtype,
  limit_flop_per_ns,
  dtype_known,
  reason
FROM worked
