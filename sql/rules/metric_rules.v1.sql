-- /// tw
-- kind     = "table"
-- name     = "metric_rules"
-- version  = 1
-- summary  = "Names of Nsight Compute metrics that show what limits a kernel, in the raw page and in the details page."
-- grain    = ["metric", "unit"]
-- order    = ["metric", "unit"]
--
-- [columns]
-- metric   = { type = "VARCHAR", doc = "Name of the metric." }
-- unit     = { type = "VARCHAR", doc = "Its base unit: some labels name several metrics." }
-- quantity = { type = "VARCHAR", doc = "compute, memory: share of the peak throughput; occupancy: share of the warps that an SM can hold; duration." }
--
-- [changes]
-- 1 = "First version. Untested on real data."
-- ///
SELECT
  metric,
  unit,
  quantity
FROM (
  VALUES
    ('Achieved Occupancy', '%', 'occupancy'),
    ('Compute (SM) Throughput', '%', 'compute'),
    ('Compute (SM) [%]', '%', 'compute'),
    ('Duration', 'ns', 'duration'),
    ('Memory Throughput', '%', 'memory'),
    ('Memory [%]', '%', 'memory'),
    ('SM [%]', '%', 'compute'),
    ('gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed', '%', 'memory'),
    ('gpu__time_duration.sum', 'ns', 'duration'),
    ('sm__throughput.avg.pct_of_peak_sustained_elapsed', '%', 'compute'),
    ('sm__warps_active.avg.pct_of_peak_sustained_active', '%', 'occupancy')
) AS rules (metric, unit, quantity)
