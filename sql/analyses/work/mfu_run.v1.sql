-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "mfu_run"
-- version  = 1
-- summary  = "Model and hardware FLOP utilization (MFU, HFU) of a run: FLOP of all ranks as a share of what their devices can do."
-- requires = ["rank_work@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id"]
-- order    = ["run_id"]
--
-- [params]
-- peak_flop_per_ns = { type = "DOUBLE", unit = "flop_per_ns", doc = "Peak rate of a device, instead of that of `device_specs`." }
-- min_coverage     = { type = "DOUBLE", unit = "ratio", default = 0.5, min = 0, max = 1, doc = "With a lower flop_coverage, mfu and hfu are null." }
--
-- [columns]
-- run_id            = { type = "VARCHAR", doc = "The run." }
-- ranks             = { type = "BIGINT", unit = "count", doc = "Number of ranks with GPU activity." }
-- steps             = { type = "BIGINT", unit = "count", doc = "Complete steps of the rank that has most; 0 if the GPU windows are used." }
-- period_ns         = { type = "BIGINT", unit = "ns", better = "lower", doc = "The longest sum of the periods of complete steps, or GPU window, of a rank." }
-- model_flop        = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the model needs, of all ranks." }
-- hardware_flop     = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP that the hardware does, of all ranks." }
-- mfu               = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Model FLOP utilization: model_flop / (period_ns × ranks × peak rate). FLOP of unknown operators are missing: a lower bound." }
-- hfu               = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Hardware FLOP utilization: hardware_flop by the same denominator." }
-- flop_coverage     = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Share of the computation time of all ranks in operators of known FLOP." }
-- peak_dtype        = { type = "VARCHAR", null = true, doc = "Type of the arithmetic of most FLOP, whose peak rate is used; null if it differs between ranks." }
-- limit_flop_per_ns = { type = "DOUBLE", null = true, unit = "flop_per_ns", doc = "Sum of the peak rates of the ranks' devices, which are taken to be alike: the highest × ranks. `checked` in `device_specs` says whether the figure was compared with the vendor's documentation." }
-- dtype_known       = { type = "BOOLEAN", null = true, doc = "False if the type or its peak is not certain on some rank." }
-- reason            = { type = "VARCHAR", null = true, doc = "Why mfu is null." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  summed AS (
    SELECT
      run_id,
      count(*) AS ranks,
      max(steps) AS steps,
      max(period_ns) AS period_ns,
      sum(model_flop)::BIGINT AS model_flop,
      sum(hardware_flop)::BIGINT AS hardware_flop,
      CASE WHEN sum(computation_ns) > 0 THEN sum(covered_ns) / sum(computation_ns) END AS flop_coverage,
      CASE WHEN count(DISTINCT peak_dtype) = 1 THEN min(peak_dtype) END AS peak_dtype,
      count(DISTINCT peak_dtype) AS peak_dtypes,
      string_agg(DISTINCT device_name, ', ' ORDER BY device_name) AS device_names,
      count(*) * coalesce(nullif(greatest($peak_flop_per_ns, 0), 0), max(limit_flop_per_ns)) AS limit_flop_per_ns,
      bool_and(dtype_known) AS dtype_known
    FROM rank_work
    GROUP BY run_id
  ),
  explained AS (
    SELECT
      run_id,
      ranks,
      steps,
      period_ns,
      model_flop,
      hardware_flop,
      flop_coverage,
      peak_dtype,
      limit_flop_per_ns,
      dtype_known,
      CASE
        WHEN flop_coverage IS NULL THEN 'no computation'
        WHEN model_flop IS NULL THEN 'no operator of known FLOP'
        WHEN flop_coverage < $min_coverage THEN format('FLOP known for {:.0f} % of computation time', floor(flop_coverage * 100))
        WHEN peak_dtypes = 0 AND hardware_flop = 0 THEN 'no operator with FLOP'
        WHEN limit_flop_per_ns IS NULL THEN coalesce('no peak rate of ' || device_names || ' is known', 'no device name was recorded, so no peak rate is known') || ' for ' || coalesce(peak_dtype, 'several types')
        WHEN period_ns = 0 THEN 'no duration'
      END AS reason
    FROM summed
  )
SELECT
  run_id,
  ranks,
  steps,
  period_ns,
  model_flop,
  hardware_flop,
  CASE WHEN reason IS NULL THEN model_flop / (period_ns * limit_flop_per_ns) END AS mfu,
  CASE WHEN reason IS NULL THEN hardware_flop / (period_ns * limit_flop_per_ns) END AS hfu,
  flop_coverage,
  peak_dtype,
  limit_flop_per_ns,
  dtype_known,
  reason
FROM explained
