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
-- quantity  = { type = "VARCHAR", doc = "sm_active, tensor_active, dram_read, dram_write, or counter for any other hardware counter (`gpu_metric_rules`)." }
-- ts_ns     = { type = "BIGINT", unit = "ts", signed = true, doc = "Time of the sample." }
-- share     = { type = "DOUBLE", unit = "ratio", null = true, doc = "Its value: a share of the peak. Values below 0 and above 1 are left out. Null for a counter." }
-- counter   = { type = "VARCHAR", null = true, doc = "The name of a counter." }
-- value     = { type = "DOUBLE", null = true, doc = "The value of a counter, in the unit that its name says." }
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
      -- Kineto names the process of a device's counters.
      coalesce(nullif(regexp_extract(counters.pid, '^GPU (\d+) Counters$', 1), ''), counters.pid) AS device,
      quantities.quantity,
      counters.ts_ns,
      CASE WHEN quantities.quantity <> 'counter' THEN counters.value / 100 END AS share,
      CASE WHEN quantities.quantity = 'counter' THEN counters.name END AS counter,
      CASE WHEN quantities.quantity = 'counter' THEN counters.value END AS value
    FROM counters
    JOIN quantities USING (name)
    WHERE counters.ts_ns IS NOT NULL AND (quantities.quantity = 'counter' OR counters.value / 100 BETWEEN 0 AND 1)
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
      samples.counter,
      samples.value,
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
  placed.counter,
  placed.value,
  CASE WHEN placed.is_inside THEN placed.step END AS step,
  CASE WHEN placed.is_inside AND kernels.activity = 'kernel' THEN placed.kernel_id END AS kernel_id,
  placed.is_inside AND NOT placed.is_outside AS in_window
FROM placed
LEFT JOIN kernels
  ON kernels.run_id = placed.run_id AND kernels.rank = placed.rank AND kernels.event_id = placed.kernel_id
