-- /// tw
-- kind    = "table"
-- name    = "device_specs"
-- version = 1
-- summary = "Peak rates, memory, caches and links of devices by data type, as the vendors specify them. A device without a row has no known peak."
-- grain   = ["rule_id", "dtype"]
-- order   = ["rule_id", "dtype"]
--
-- [columns]
-- rule_id                  = { type = "INTEGER", unit = "id", doc = "Position in the order; of the patterns that match a device name, the lowest counts." }
-- pattern                  = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the device name. Most end with `$`: a slice of a GPU (MIG) and other products whose names go on are other devices." }
-- name                     = { type = "VARCHAR", doc = "The device." }
-- unit_kind                = { type = "VARCHAR", doc = "matrix: units for matrix products, such as tensor cores; vector: general arithmetic units. The faster of the two for this type. A device has units for matrix products if any of its rows says so." }
-- dtype                    = { type = "VARCHAR", doc = "Type of the arithmetic: fp64, fp32, tf32, fp16, bf16, fp8, fp4 or int8. Types whose rate is not known have no row." }
-- flop_per_ns              = { type = "DOUBLE", unit = "flop_per_ns", doc = "Peak rate, dense: where a vendor only gives the rate with sparsity, half of it. Of a device that is one die of several (MI250, MI250X), the rate of the die." }
-- memory_bytes_per_ns      = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Peak memory bandwidth." }
-- l2_bytes                 = { type = "BIGINT", unit = "bytes", null = true, doc = "Size of the L2 cache, the sum over the dies of the device; null if it is not known." }
-- host_link_bytes_per_ns   = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Nominal bandwidth of the PCIe link to the host in one direction; half of a figure for both. Null if it is not known or depends on the host." }
-- device_link_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Sum over the device's links to other devices (NVLink, Infinity Fabric, ICI), in one direction. Null if it has none, they are an option (bridges of PCIe cards), or it is not known." }
-- rate_known               = { type = "BOOLEAN", doc = "False if the rate depends on something that traces do not record, such as the type of the accumulator; the rate is then the highest." }
-- source                   = { type = "VARCHAR", doc = "The vendor's text that gives the figures. Those that no text of the vendor gives are null." }
-- source_date              = { type = "VARCHAR", doc = "Year of the source." }
-- checked                  = { type = "BOOLEAN", doc = "True if this rate and the memory bandwidth were compared with texts of the vendor, the source among them; the others are not verified." }
--
-- [changes]
-- 1 = "First version."
-- ///
-- Devices with the same chip and clock share their rates. TB/s of memory, MiB of L2, GB/s of the links.
WITH
  devices AS (
    SELECT rule_id, pattern, name, chip, terabytes_per_s, l2_mib, host_gb_per_s, link_gb_per_s, checked, source, source_date
    FROM (
      VALUES
        (1, 'V100-SXM2-\d+GB$', 'V100 SXM2', 'V100 SXM', 0.900, 6.0, NULL, 150.0, TRUE, 'NVIDIA technical blog, Ampere architecture in depth', '2020'),
        (2, 'V100-SXM3-\d+GB$', 'V100 SXM3', 'V100 SXM3', NULL, 6.0, 16.0, 150.0, FALSE, 'NVIDIA DGX-2 data sheet', '2018'),
        (3, 'V100-DGXS-\d+GB$', 'V100 DGX Station', 'V100 SXM', 0.900, 6.0, 16.0, NULL, FALSE, 'NVIDIA V100 data sheet', '2020'),
        (4, 'V100-PCIE-\d+GB$', 'V100 PCIe', 'V100 PCIe', 0.900, 6.0, 16.0, NULL, FALSE, 'NVIDIA V100 data sheet', '2020'),
        (5, '(Tesla|NVIDIA) T4$', 'T4', 'T4', 0.320, 4.0, 16.0, NULL, FALSE, 'NVIDIA Turing white paper', '2018'),
        (6, 'RTX 2080 Ti$', 'RTX 2080 Ti', 'RTX 2080 Ti', 0.616, 5.5, 16.0, NULL, FALSE, 'NVIDIA Turing white paper', '2018'),
        (7, 'A100-SXM4?-40GB$|A100-PG509-200$', 'A100 SXM4 40 GB', 'A100', 1.555, 40.0, 32.0, 300.0, TRUE, 'NVIDIA technical blog, Ampere architecture in depth', '2020'),
        (8, 'A100-SXM4?-80GB$', 'A100 SXM4 80 GB', 'A100', 2.039, 40.0, 32.0, 300.0, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (9, 'A100-PCIE-40GB$', 'A100 PCIe 40 GB', 'A100', 1.555, 40.0, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (10, 'A100 80GB PCIe$|A100-PCIE-80GB$', 'A100 PCIe 80 GB', 'A100', 1.935, 40.0, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (11, '\bA30$', 'A30', 'A30', 0.933, NULL, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (12, '\bA10$', 'A10', 'A10', 0.600, NULL, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (13, '\bA40$', 'A40', 'A40', 0.696, 6.0, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (14, '\bL4$', 'L4', 'L4', 0.300, NULL, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (15, '\bL40S$', 'L40S', 'L40S', 0.864, NULL, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (16, 'RTX 4090$', 'RTX 4090', 'RTX 4090', 1.008, 72.0, 32.0, NULL, FALSE, 'NVIDIA Ada white paper', '2022'),
        (17, 'RTX 5090$', 'RTX 5090', 'RTX 5090', 1.792, 96.0, 64.0, NULL, FALSE, 'NVIDIA RTX Blackwell white paper', '2025'),
        (18, 'H100 80GB HBM3$|H100-SXM5?(-80GB)?$', 'H100 SXM', 'H100 SXM', 3.350, 50.0, 64.0, 450.0, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (19, 'H100 PCIe$', 'H100 PCIe', 'H100 PCIe', 2.000, 50.0, 64.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (20, 'H100 NVL$', 'H100 NVL', 'H100 NVL', 3.900, NULL, 64.0, NULL, FALSE, 'NVIDIA H100 NVL data sheet', '2024'),
        (21, '\bH200$', 'H200', 'H100 SXM', 4.800, NULL, 64.0, 450.0, TRUE, 'NVIDIA AIConfigurator repository, systems', '2026'),
        (22, '\bH200 NVL$', 'H200 NVL', 'H100 NVL', 4.800, NULL, 64.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (23, '\bH20$', 'H20', 'H20', 4.000, NULL, 64.0, 450.0, FALSE, 'NVIDIA H20 product brief', '2024'),
        (24, '\bB200$', 'B200', 'B200', 7.700, NULL, 64.0, 900.0, TRUE, 'NVIDIA AIConfigurator repository, systems', '2026'),
        (25, '\bGB200$', 'GB200', 'GB200', 8.000, 126.0, NULL, 900.0, TRUE, 'NVIDIA AIConfigurator repository, systems', '2026'),
        (26, '\bB300( SXM6 AC)?$', 'B300', 'B300', 7.750, NULL, 128.0, 900.0, TRUE, 'NVIDIA AIConfigurator repository, systems', '2026'),
        (27, '\bMI210$', 'MI210', 'CDNA 2 die', 1.600, 8.0, 32.0, NULL, FALSE, 'AMD Instinct MI210 data sheet', '2022'),
        (28, 'MI250X ?/ ?MI250$', 'MI250X or MI250, one die', 'MI250X die, or MI250', 1.600, 8.0, NULL, NULL, TRUE, 'AMD lab notes, matrix cores and Laplacian', '2024'),
        (29, '\bMI250X$', 'MI250X, one die', 'MI250X die', 1.600, 8.0, NULL, NULL, TRUE, 'AMD lab notes, matrix cores and Laplacian', '2024'),
        (30, '(^|Instinct )MI250$', 'MI250, one die', 'CDNA 2 die', 1.600, 8.0, 32.0, NULL, TRUE, 'AMD ROCm documentation, MI250 microarchitecture', '2025'),
        (31, '\bMI300A\b', 'MI300A', 'MI300A', 5.300, 24.0, NULL, NULL, FALSE, 'AMD Instinct MI300A data sheet', '2023'),
        (32, '\bMI300X\b', 'MI300X', 'MI300X', 5.300, 32.0, 64.0, 448.0, TRUE, 'AMD ROCm documentation, MI300 series microarchitecture', '2024'),
        (33, '\bMI325X\b', 'MI325X', 'MI300X', 6.000, 32.0, 64.0, 448.0, TRUE, 'AMD Primus repository, hardware profiles', '2026'),
        (34, '\bMI350X\b', 'MI350X', 'MI350X', 8.000, 32.0, 64.0, NULL, FALSE, 'AMD Instinct MI350X data sheet', '2025'),
        (35, '\bMI355X\b', 'MI355X', 'MI355X', 8.000, 32.0, 64.0, NULL, TRUE, 'AMD Primus repository, hardware profiles', '2026'),
        (36, '^TPU v4$', 'TPU v4', 'TPU v4', 1.200, NULL, NULL, NULL, TRUE, 'Google Cloud documentation, TPU v4', '2025'),
        (37, '^TPU v5( lite|e)$', 'TPU v5e', 'TPU v5e', 0.819, NULL, NULL, 200.0, TRUE, 'Google Cloud documentation, TPU v5e', '2025'),
        (38, '^TPU v5p?$', 'TPU v5p', 'TPU v5p', 2.765, NULL, NULL, 600.0, TRUE, 'Google Cloud documentation, TPU v5p', '2025'),
        (39, '^TPU v6( lite|e)$', 'TPU v6e', 'TPU v6e', 1.638, NULL, NULL, 400.0, TRUE, 'Google Cloud documentation, TPU v6e', '2025'),
        (40, '(?i)\bgaudi ?2$', 'Gaudi 2', 'Gaudi 2', 2.460, NULL, 32.0, NULL, TRUE, 'Intel presentation of Gaudi 3, Hot Chips', '2024'),
        (41, '(?i)\bgaudi ?3$', 'Gaudi 3', 'Gaudi 3', 3.670, 96.0, 64.0, NULL, TRUE, 'Intel presentation of Gaudi 3, Hot Chips', '2024'),
        -- A device is the card or one of its two stacks, as the driver is set.
        (42, 'GPU Max 1550$', 'Max 1550', 'Max 1550', NULL, NULL, 64.0, NULL, FALSE, 'Intel Data Center GPU Max technical overview', '2023'),
        (43, '\bA10G$', 'A10G', 'A10G', 0.600, NULL, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (44, '\bL40$', 'L40', 'L40', 0.864, NULL, 32.0, NULL, TRUE, 'NVIDIA TensorRT-LLM repository, cluster_info.py', '2025'),
        (45, '\bGB300$', 'GB300', 'GB300', 8.000, NULL, NULL, 900.0, TRUE, 'NVIDIA AIConfigurator repository, systems', '2026')
    ) AS listed (rule_id, pattern, name, chip, terabytes_per_s, l2_mib, host_gb_per_s, link_gb_per_s, checked, source, source_date)
  ),
  -- TFLOP/s by type, of units for matrix products and of others; the types whose rate depends on what is not recorded,
  -- and those whose rate was in no text of the vendor that could be read.
  chips AS (
    SELECT chip, matrix, vector, unsure, unread
    FROM (
      VALUES
        ('V100 SXM', MAP {'fp16': 125.0}, MAP {'fp32': 15.7, 'fp64': 7.8}, [], []),
        ('V100 SXM3', MAP {'fp16': 125.0}, MAP {}, [], []),
        ('V100 PCIe', MAP {'fp16': 112.0}, MAP {'fp32': 14.0, 'fp64': 7.0}, [], []),
        ('T4', MAP {'fp16': 65.0, 'int8': 130.0}, MAP {'fp32': 8.1}, [], []),
        ('RTX 2080 Ti', MAP {'fp16': 107.6}, MAP {'fp32': 13.4}, ['fp16'], []),
        ('A100', MAP {'bf16': 312.0, 'fp16': 312.0, 'tf32': 156.0, 'fp64': 19.5, 'int8': 624.0}, MAP {'fp32': 19.5}, [], []),
        ('A30', MAP {'bf16': 165.0, 'fp16': 165.0, 'tf32': 82.0, 'fp64': 10.3, 'int8': 330.0}, MAP {'fp32': 10.3}, [], ['fp32', 'fp64']),
        ('A10', MAP {'bf16': 125.0, 'fp16': 125.0, 'tf32': 62.5, 'int8': 250.0}, MAP {'fp32': 31.2}, [], ['fp32']),
        ('A10G', MAP {'bf16': 70.0, 'fp16': 70.0, 'tf32': 35.0, 'int8': 140.0}, MAP {}, [], []),
        ('A40', MAP {'bf16': 149.7, 'fp16': 149.7, 'tf32': 74.8, 'int8': 299.3}, MAP {'fp32': 37.4}, [], ['fp32']),
        ('L4', MAP {'bf16': 121.0, 'fp16': 121.0, 'tf32': 60.0, 'fp8': 242.5, 'int8': 242.5}, MAP {'fp32': 30.3}, [], ['fp32']),
        ('L40', MAP {'bf16': 181.0, 'fp16': 181.0, 'tf32': 90.0, 'fp8': 362.0, 'int8': 362.0}, MAP {}, [], []),
        ('L40S', MAP {'bf16': 362.05, 'fp16': 362.05, 'tf32': 183.0, 'fp8': 733.0, 'int8': 733.0}, MAP {'fp32': 91.6}, [], ['fp32']),
        ('RTX 4090', MAP {'bf16': 165.2, 'fp16': 330.3, 'tf32': 82.6, 'fp8': 660.6, 'int8': 660.6}, MAP {'fp32': 82.6}, ['fp16', 'fp8'], []),
        ('RTX 5090', MAP {'bf16': 209.5, 'fp16': 419.0, 'tf32': 104.8, 'fp8': 838.0, 'fp4': 1676.0, 'int8': 838.0}, MAP {'fp32': 104.8}, ['fp16', 'fp8'], []),
        ('H100 SXM', MAP {'bf16': 989.4, 'fp16': 989.4, 'tf32': 494.7, 'fp8': 1978.9, 'fp64': 66.9, 'int8': 1978.9}, MAP {'fp32': 66.9}, [], ['fp64']),
        ('H100 PCIe', MAP {'bf16': 756.5, 'fp16': 756.5, 'tf32': 378.0, 'fp8': 1513.0, 'fp64': 51.0, 'int8': 1513.0}, MAP {'fp32': 51.0}, [], ['fp32', 'fp64']),
        ('H100 NVL', MAP {'bf16': 835.5, 'fp16': 835.5, 'tf32': 417.5, 'fp8': 1670.5, 'fp64': 60.0, 'int8': 1670.5}, MAP {'fp32': 60.0}, [], ['tf32', 'fp64']),
        ('H20', MAP {'bf16': 148.0, 'fp16': 148.0, 'tf32': 74.0, 'fp8': 296.0, 'int8': 296.0}, MAP {'fp32': 44.0}, [], []),
        ('B200', MAP {'bf16': 2250.0, 'fp16': 2250.0, 'tf32': 1125.0, 'fp8': 4500.0, 'fp4': 9000.0, 'int8': 4500.0}, MAP {}, [], []),
        ('GB200', MAP {'bf16': 2500.0, 'fp16': 2500.0, 'tf32': 1250.0, 'fp8': 5000.0, 'fp4': 10000.0, 'int8': 5000.0}, MAP {}, [], []),
        ('B300', MAP {'bf16': 2250.0, 'fp16': 2250.0, 'tf32': 1125.0, 'fp8': 4500.0, 'fp4': 13500.0}, MAP {}, [], []),
        ('GB300', MAP {'bf16': 2500.0, 'fp16': 2500.0, 'tf32': 1250.0, 'fp8': 5000.0, 'fp4': 15000.0}, MAP {}, [], []),
        ('CDNA 2 die', MAP {'bf16': 181.05, 'fp16': 181.05, 'fp32': 45.25, 'fp64': 45.25, 'int8': 181.05}, MAP {}, [], []),
        ('MI250X die', MAP {'bf16': 191.5, 'fp16': 191.5, 'fp32': 47.85, 'fp64': 47.85, 'int8': 191.5}, MAP {}, [], []),
        ('MI250X die, or MI250', MAP {'bf16': 191.5, 'fp16': 191.5, 'fp32': 47.85, 'fp64': 47.85, 'int8': 191.5}, MAP {}, ['bf16', 'fp16', 'fp32', 'fp64', 'int8'], []),
        ('MI300A', MAP {'bf16': 980.6, 'fp16': 980.6, 'tf32': 490.3, 'fp8': 1961.2, 'fp32': 122.6, 'fp64': 122.6, 'int8': 1961.2}, MAP {}, [], []),
        ('MI300X', MAP {'bf16': 1307.4, 'fp16': 1307.4, 'tf32': 653.7, 'fp8': 2614.9, 'fp32': 163.4, 'fp64': 163.4, 'int8': 2614.9}, MAP {}, [], []),
        ('MI350X', MAP {'bf16': 2306.9, 'fp16': 2306.9, 'fp8': 4613.7, 'fp4': 9227.5, 'fp32': 144.2, 'fp64': 72.1, 'int8': 4613.7}, MAP {}, [], []),
        ('MI355X', MAP {'bf16': 2516.6, 'fp16': 2516.6, 'fp8': 5033.2, 'fp4': 10066.3, 'fp32': 157.3, 'fp64': 78.6, 'int8': 5033.2}, MAP {}, [], ['fp4']),
        ('TPU v4', MAP {'bf16': 275.0, 'int8': 275.0}, MAP {}, [], []),
        ('TPU v5e', MAP {'bf16': 197.0, 'int8': 393.0}, MAP {}, [], []),
        ('TPU v5p', MAP {'bf16': 459.0, 'fp8': 459.0}, MAP {}, [], []),
        ('TPU v6e', MAP {'bf16': 918.0, 'fp8': 918.0, 'int8': 1836.0}, MAP {}, [], []),
        ('Gaudi 2', MAP {'bf16': 432.0, 'fp8': 865.0}, MAP {}, [], ['fp8']),
        ('Gaudi 3', MAP {'bf16': 1835.0, 'fp8': 1835.0}, MAP {}, [], []),
        ('Max 1550', MAP {'bf16': 839.0, 'fp16': 839.0, 'tf32': 419.0, 'int8': 1678.0}, MAP {'fp32': 52.4, 'fp64': 52.4}, ['bf16', 'fp16', 'tf32', 'fp32', 'fp64', 'int8'], [])
    ) AS listed (chip, matrix, vector, unsure, unread)
  ),
  rates AS (
    SELECT chip, 'matrix' AS unit_kind, unnest(map_keys(matrix)) AS dtype, unnest(map_values(matrix)) AS tflop_per_s, unsure, unread
    FROM chips
    UNION ALL
    SELECT chip, 'vector', unnest(map_keys(vector)), unnest(map_values(vector)), unsure, unread
    FROM chips
  )
SELECT
  devices.rule_id,
  devices.pattern,
  devices.name,
  rates.unit_kind,
  rates.dtype,
  (1000 * rates.tflop_per_s)::DOUBLE AS flop_per_ns,
  (1000 * devices.terabytes_per_s)::DOUBLE AS memory_bytes_per_ns,
  (1048576 * devices.l2_mib)::BIGINT AS l2_bytes,
  devices.host_gb_per_s::DOUBLE AS host_link_bytes_per_ns,
  devices.link_gb_per_s::DOUBLE AS device_link_bytes_per_ns,
  NOT list_contains(rates.unsure, rates.dtype) AS rate_known,
  devices.source,
  devices.source_date,
  devices.checked AND NOT list_contains(rates.unread, rates.dtype) AS checked
FROM devices
JOIN rates USING (chip)
