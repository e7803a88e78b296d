-- /// tw
-- kind     = "table"
-- name     = "gpu_metric_rules"
-- version  = 1
-- summary  = "Names of counters with sampled GPU metrics, as Nsight Systems writes them: the first rule that matches applies."
-- grain    = ["rule_id"]
-- order    = ["rule_id"]
--
-- [columns]
-- rule_id  = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- pattern  = { type = "VARCHAR", doc = "Regular expression (RE2) for the name of the counter, whose values are percentages." }
-- quantity = { type = "VARCHAR", doc = "sm_active: share of the SMs with work; tensor_active: share of the peak of the tensor cores; dram_read, dram_write: share of the peak bandwidth of device memory; counter: any other hardware counter, in the unit that its name says." }
--
-- [changes]
-- 1 = "First version. Untested on real data."
-- ///
SELECT
  rule_id,
  pattern,
  quantity
FROM (
  VALUES
    (1, '(?i)^SMs? Active\b|^sm__cycles_active\.avg\.pct', 'sm_active'),
    (2, '(?i)^Tensor Active\b|^sm__(inst_executed_)?pipe_tensor(_cycles_active)?\.avg\.pct', 'tensor_active'),
    (3, '(?i)^DRAM Read (Bandwidth|Throughput)\b|^dram__read_throughput\.avg\.pct', 'dram_read'),
    (4, '(?i)^DRAM Write (Bandwidth|Throughput)\b|^dram__write_throughput\.avg\.pct', 'dram_write'),
    (5, '^[a-z0-9]+__\w+', 'counter')
) AS rules (rule_id, pattern, quantity)
