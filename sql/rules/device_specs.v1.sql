-- /// tw
-- kind    = "table"
-- name    = "device_specs"
-- version = 1
-- summary = "Peak rates of devices by data type, dense (without sparsity), as the vendors' data sheets give them. A device without a row has no known peak."
-- grain   = ["rule_id", "dtype"]
-- order   = ["rule_id", "dtype"]
--
-- [columns]
-- rule_id             = { type = "INTEGER", unit = "id", doc = "Position in the order; of the patterns that match a device name, the lowest counts." }
-- pattern             = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the device name." }
-- name                = { type = "VARCHAR", doc = "The device." }
-- unit_kind           = { type = "VARCHAR", doc = "matrix: units for matrix products; vector: general arithmetic units." }
-- dtype               = { type = "VARCHAR", doc = "Type of the arithmetic: fp64, fp32, tf32, fp16, bf16 or fp8." }
-- flop_per_ns         = { type = "DOUBLE", unit = "flop_per_ns", doc = "Peak rate." }
-- memory_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Peak memory bandwidth." }
-- rate_known          = { type = "BOOLEAN", doc = "False if the rate depends on something that traces do not record, such as the type of the accumulator; the rate is then the highest." }
-- source              = { type = "VARCHAR", doc = "Where the figures come from." }
-- source_date         = { type = "VARCHAR", doc = "Year of the source." }
-- checked             = { type = "BOOLEAN", doc = "True if the row was compared with the source itself; the others are not verified." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  pattern,
  name,
  unit_kind,
  dtype,
  (1000 * tflop_per_s)::DOUBLE AS flop_per_ns,
  (1000 * terabytes_per_s)::DOUBLE AS memory_bytes_per_ns,
  rate_known,
  source,
  source_date,
  -- Compared with the tables of that page; the data sheets of the other devices could not be read yet.
  name = 'MI300X' AS checked
FROM (
  VALUES
    (1, 'V100-SXM2|V100-DGXS', 'V100 SXM2', 'matrix', 'fp16', 125.0, 0.900, TRUE, 'NVIDIA V100 data sheet', '2020'),
    (1, 'V100-SXM2|V100-DGXS', 'V100 SXM2', 'vector', 'fp32', 15.7, 0.900, TRUE, 'NVIDIA V100 data sheet', '2020'),
    (1, 'V100-SXM2|V100-DGXS', 'V100 SXM2', 'vector', 'fp64', 7.8, 0.900, TRUE, 'NVIDIA V100 data sheet', '2020'),
    (2, 'A100-SXM4-40GB|A100-PG509-200', 'A100 SXM4 40 GB', 'matrix', 'bf16', 312.0, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (2, 'A100-SXM4-40GB|A100-PG509-200', 'A100 SXM4 40 GB', 'matrix', 'fp16', 312.0, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (2, 'A100-SXM4-40GB|A100-PG509-200', 'A100 SXM4 40 GB', 'matrix', 'tf32', 156.0, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (2, 'A100-SXM4-40GB|A100-PG509-200', 'A100 SXM4 40 GB', 'vector', 'fp32', 19.5, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (2, 'A100-SXM4-40GB|A100-PG509-200', 'A100 SXM4 40 GB', 'matrix', 'fp64', 19.5, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (3, 'A100-SXM4-80GB', 'A100 SXM4 80 GB', 'matrix', 'bf16', 312.0, 2.039, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (3, 'A100-SXM4-80GB', 'A100 SXM4 80 GB', 'matrix', 'fp16', 312.0, 2.039, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (3, 'A100-SXM4-80GB', 'A100 SXM4 80 GB', 'matrix', 'tf32', 156.0, 2.039, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (3, 'A100-SXM4-80GB', 'A100 SXM4 80 GB', 'vector', 'fp32', 19.5, 2.039, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (3, 'A100-SXM4-80GB', 'A100 SXM4 80 GB', 'matrix', 'fp64', 19.5, 2.039, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (4, 'A100-PCIE-40GB', 'A100 PCIe 40 GB', 'matrix', 'bf16', 312.0, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (4, 'A100-PCIE-40GB', 'A100 PCIe 40 GB', 'matrix', 'fp16', 312.0, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (4, 'A100-PCIE-40GB', 'A100 PCIe 40 GB', 'matrix', 'tf32', 156.0, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (4, 'A100-PCIE-40GB', 'A100 PCIe 40 GB', 'vector', 'fp32', 19.5, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (4, 'A100-PCIE-40GB', 'A100 PCIe 40 GB', 'matrix', 'fp64', 19.5, 1.555, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (5, 'A100 80GB PCIe', 'A100 PCIe 80 GB', 'matrix', 'bf16', 312.0, 1.935, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (5, 'A100 80GB PCIe', 'A100 PCIe 80 GB', 'matrix', 'fp16', 312.0, 1.935, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (5, 'A100 80GB PCIe', 'A100 PCIe 80 GB', 'matrix', 'tf32', 156.0, 1.935, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (5, 'A100 80GB PCIe', 'A100 PCIe 80 GB', 'vector', 'fp32', 19.5, 1.935, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (5, 'A100 80GB PCIe', 'A100 PCIe 80 GB', 'matrix', 'fp64', 19.5, 1.935, TRUE, 'NVIDIA A100 data sheet', '2021'),
    (6, 'H100 80GB HBM3|H100-SXM', 'H100 SXM', 'matrix', 'bf16', 989.4, 3.350, TRUE, 'NVIDIA H100 data sheet', '2023'),
    (6, 'H100 80GB HBM3|H100-SXM', 'H100 SXM', 'matrix', 'fp16', 989.4, 3.350, TRUE, 'NVIDIA H100 data sheet', '2023'),
    (6, 'H100 80GB HBM3|H100-SXM', 'H100 SXM', 'matrix', 'tf32', 494.7, 3.350, TRUE, 'NVIDIA H100 data sheet', '2023'),
    (6, 'H100 80GB HBM3|H100-SXM', 'H100 SXM', 'matrix', 'fp8', 1978.9, 3.350, TRUE, 'NVIDIA H100 data sheet', '2023'),
    (6, 'H100 80GB HBM3|H100-SXM', 'H100 SXM', 'vector', 'fp32', 66.9, 3.350, TRUE, 'NVIDIA H100 data sheet', '2023'),
    (7, 'NVIDIA H200$', 'H200', 'matrix', 'bf16', 989.4, 4.800, TRUE, 'NVIDIA H200 data sheet', '2024'),
    (7, 'NVIDIA H200$', 'H200', 'matrix', 'fp16', 989.4, 4.800, TRUE, 'NVIDIA H200 data sheet', '2024'),
    (7, 'NVIDIA H200$', 'H200', 'matrix', 'tf32', 494.7, 4.800, TRUE, 'NVIDIA H200 data sheet', '2024'),
    (7, 'NVIDIA H200$', 'H200', 'matrix', 'fp8', 1978.9, 4.800, TRUE, 'NVIDIA H200 data sheet', '2024'),
    (7, 'NVIDIA H200$', 'H200', 'vector', 'fp32', 66.9, 4.800, TRUE, 'NVIDIA H200 data sheet', '2024'),
    (8, 'B200', 'B200', 'matrix', 'bf16', 2250.0, 8.000, TRUE, 'NVIDIA Blackwell data sheet', '2024'),
    (8, 'B200', 'B200', 'matrix', 'fp16', 2250.0, 8.000, TRUE, 'NVIDIA Blackwell data sheet', '2024'),
    (9, 'MI300X', 'MI300X', 'matrix', 'bf16', 1307.4, 5.300, TRUE, 'AMD ROCm documentation, MI300 series microarchitecture', '2024'),
    (9, 'MI300X', 'MI300X', 'matrix', 'fp16', 1307.4, 5.300, TRUE, 'AMD ROCm documentation, MI300 series microarchitecture', '2024'),
    (9, 'MI300X', 'MI300X', 'matrix', 'fp8', 2614.9, 5.300, TRUE, 'AMD ROCm documentation, MI300 series microarchitecture', '2024'),
    (9, 'MI300X', 'MI300X', 'matrix', 'tf32', 653.7, 5.300, TRUE, 'AMD ROCm documentation, MI300 series microarchitecture', '2024'),
    (9, 'MI300X', 'MI300X', 'matrix', 'fp32', 163.4, 5.300, TRUE, 'AMD ROCm documentation, MI300 series microarchitecture', '2024'),
    (9, 'MI300X', 'MI300X', 'matrix', 'fp64', 163.4, 5.300, TRUE, 'AMD ROCm documentation, MI300 series microarchitecture', '2024'),
    (10, 'MI355X', 'MI355X', 'matrix', 'bf16', 2500.0, 8.000, TRUE, 'AMD Instinct MI355X data sheet', '2025'),
    (10, 'MI355X', 'MI355X', 'matrix', 'fp16', 2500.0, 8.000, TRUE, 'AMD Instinct MI355X data sheet', '2025'),
    (11, 'RTX 2080 Ti', 'RTX 2080 Ti', 'matrix', 'fp16', 107.6, 0.616, FALSE, 'NVIDIA Turing white paper', '2018'),
    (11, 'RTX 2080 Ti', 'RTX 2080 Ti', 'vector', 'fp32', 13.4, 0.616, TRUE, 'NVIDIA Turing white paper', '2018')
) AS specs (rule_id, pattern, name, unit_kind, dtype, tflop_per_s, terabytes_per_s, rate_known, source, source_date)
