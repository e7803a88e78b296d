-- /// tw
-- kind     = "analysis"
-- name     = "kernel_gpu_metrics"
-- version  = 1
-- summary  = "Measured use of the GPU while each kernel runs: activity of SMs and tensor cores and DRAM bandwidth, from sampled metrics."
-- requires = ["gpu_samples@1", "kernels@1"]
-- needs    = ["gpu", "gpu_metrics"]
-- grain    = ["run_id", "rank", "device", "name"]
-- order    = ["run_id", "rank", "-sample_count", "device", "name"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- device              = { type = "VARCHAR", null = true, doc = "The device." }
-- name                = { type = "VARCHAR", null = true, doc = "Kernel name." }
-- sample_count        = { type = "BIGINT", unit = "count", doc = "Times at which metrics were sampled while it ran. Kernels shorter than the time between samples have few: the means of few samples say little." }
-- sm_active_share     = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Mean share of the SMs with work; null without samples of this metric, as in the columns below." }
-- tensor_active_share = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Mean activity of the tensor cores, as a share of their peak." }
-- dram_read_share     = { type = "DOUBLE", null = true, unit = "ratio", doc = "Mean bandwidth of reads from device memory, as a share of the peak bandwidth." }
-- dram_write_share    = { type = "DOUBLE", null = true, unit = "ratio", doc = "Mean bandwidth of writes." }
--
-- [changes]
-- 1 = "First version. Untested on real data."
-- ///
WITH
  samples AS (
    SELECT
      run_id,
      rank,
      device,
      ts_ns,
      kernel_id,
      CASE WHEN quantity = 'sm_active' THEN share::DECIMAL(18, 6) END AS sm,
      CASE WHEN quantity = 'tensor_active' THEN share::DECIMAL(18, 6) END AS tensor,
      CASE WHEN quantity = 'dram_read' THEN share::DECIMAL(18, 6) END AS dram_read,
      CASE WHEN quantity = 'dram_write' THEN share::DECIMAL(18, 6) END AS dram_write
    FROM gpu_samples
  )
SELECT
  samples.run_id,
  samples.rank,
  samples.device,
  kernels.name,
  count(DISTINCT samples.ts_ns) AS sample_count,
  sum(samples.sm) / count(samples.sm) AS sm_active_share,
  sum(samples.tensor) / count(samples.tensor) AS tensor_active_share,
  sum(samples.dram_read) / count(samples.dram_read) AS dram_read_share,
  sum(samples.dram_write) / count(samples.dram_write) AS dram_write_share
FROM samples
JOIN kernels
  ON kernels.run_id = samples.run_id AND kernels.rank = samples.rank AND kernels.event_id = samples.kernel_id
GROUP BY samples.run_id, samples.rank, samples.device, kernels.name
