-- /// tw
-- kind     = "view"
-- name     = "gpu_samples"
-- version  = 1
-- summary  = "Sampled GPU metrics: activity of SMs and tensor cores and use of DRAM bandwidth, with the step and the kernel that runs."
-- requires = ["counters@1", "gpu_metric_rules@1", "device_segments@1", "kernels@1"]
-- grain    = ["run_id", "rank", "event_id", "series"]
-- order    = ["run_id", "rank", "event_id", "series"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- event_id  = { type = "BIGINT", unit = "id", doc = "The counter." }
-- series    = { type = "VARCHAR", doc = "Its series, as in `counters`." }
-- device    = { type = "VARCHAR", null = true, doc = "The device, as text." }
-- quantity  = { type = "VARCHAR", doc = "sm_active, tensor_active, dram_read or dram_write (`gpu_metric_rules`)." }
-- ts_ns     = { type = "BIGINT", unit = "ts", signed = true, doc = "Time of the sample." }
-- share     = { type = "DOUBLE", unit = "ratio", doc = "Its value: a share of the peak. Values below 0 and above 1 are left out." }
-- step      = { type = "BIGINT", unit = "id", null = true, doc = "The step whose period contains it." }
-- kernel_id = { type = "BIGINT", unit = "id", null = true, doc = "The kernel that runs; of several, the one that `device_segments` names: computation before communication, then the first to start. Null if none runs, or if only a copy does." }
-- in_window = { type = "BOOLEAN", doc = "True between the first start and the last end of the GPU activities of the rank." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  quantities AS (
    SELECT named.name, arg_min(rule.quantity, rule.rule_id) AS quantity
    FROM (SELECT DISTINCT name FROM counters WHERE name IS NOT NULL) AS named
    JOIN gpu_metric_rules AS rule ON regexp_matches(named.name, rule.pattern)
    GROUP BY named.name
  ),
  samples AS (
    SELECT
      counters.run_id,
      counters.rank,
      counters.event_id,
      counters.series,
      counters.pid AS device,
      quantities.quantity,
      counters.ts_ns,
      counters.value / 100 AS share
    FROM counters
    JOIN quantities USING (name)
    WHERE counters.ts_ns IS NOT NULL AND counters.value / 100 BETWEEN 0 AND 1
  ),
  placed AS (
    SELECT
      samples.run_id,
      samples.rank,
      samples.event_id,
      samples.series,
      samples.device,
      samples.quantity,
      samples.ts_ns,
      samples.share,
      segment.step,
      segment.kernel_id,
      coalesce(segment.cause = 'outside', FALSE) AS is_outside,
      coalesce(samples.ts_ns < segment.start_ns + segment.segment_ns, FALSE) AS is_inside
    FROM samples
    ASOF LEFT JOIN device_segments AS segment
      ON segment.run_id = samples.run_id AND segment.rank = samples.rank AND segment.start_ns <= samples.ts_ns
  )
SELECT
  placed.run_id,
  placed.rank,
  placed.event_id,
  placed.series,
  placed.device,
  placed.quantity,
  placed.ts_ns,
  placed.share,
  CASE WHEN placed.is_inside THEN placed.step END AS step,
  CASE WHEN placed.is_inside AND kernels.activity = 'kernel' THEN placed.kernel_id END AS kernel_id,
  placed.is_inside AND NOT placed.is_outside AS in_window
FROM placed
LEFT JOIN kernels
  ON kernels.run_id = placed.run_id AND kernels.rank = placed.rank AND kernels.event_id = placed.kernel_id
