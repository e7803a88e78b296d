-- /// tw
-- kind     = "table"
-- name     = "link_rules"
-- version  = 1
-- summary  = "Peak bandwidth of the links between the GPUs of one host, by device name; the first matching rule applies."
-- grain    = ["rule_id"]
-- order    = ["rule_id"]
--
-- [columns]
-- rule_id           = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- pattern           = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the device name. Only models whose links are the same in every product are listed; PCIe cards are not." }
-- link              = { type = "VARCHAR", doc = "Kind of link." }
-- peak_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", doc = "Sum over a GPU's links, in one direction, as specified by the vendor." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  pattern,
  link,
  peak_bytes_per_ns::DOUBLE AS peak_bytes_per_ns
FROM (
  VALUES
    (1, 'V100-SXM', 'NVLink 2', 150.0),
    (2, 'A100-SXM', 'NVLink 3', 300.0),
    (3, 'H100 80GB HBM3|H100-SXM|NVIDIA H200$', 'NVLink 4', 450.0),
    (4, 'B200', 'NVLink 5', 900.0),
    (5, 'MI300X', 'Infinity Fabric', 448.0)
) AS rules (rule_id, pattern, link, peak_bytes_per_ns)
