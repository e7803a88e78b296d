-- /// tw
-- kind     = "analysis"
-- name     = "gpu_metrics"
-- version  = 1
-- summary  = "Measured use of the GPU per step, or while each kernel runs: activity of SMs and tensor cores and DRAM bandwidth, from sampled metrics."
-- requires = ["gpu_samples@1", "kernels@1", "recorded_devices@1"]
-- needs    = ["gpu", "gpu_metrics"]
-- grain    = ["run_id", "rank", "device", "step", "name"]
-- order    = ["run_id", "rank", "device", "step", "-sample_count", "name"]
--
-- [params]
-- by_kernel = { type = "BOOLEAN", default = false, doc = "A row per kernel, of the samples taken while it runs, instead of one per step." }
--
-- [columns]
-- run_id                  = { type = "VARCHAR", doc = "The run." }
-- rank                    = { type = "INTEGER", doc = "The rank." }
-- device                  = { type = "VARCHAR", null = true, doc = "The device." }
-- step                    = { type = "BIGINT", unit = "id", null = true, doc = "Step number; null for the entire GPU window (first start to last end of GPU activities), and by kernel." }
-- name                    = { type = "VARCHAR", null = true, doc = "Kernel name, by kernel; else the name of a hardware counter whose unit is not a share of a peak." }
-- sample_count            = { type = "BIGINT", unit = "count", doc = "Times at which metrics were sampled. Kernels shorter than the time between samples have few: the means of few samples say little." }
-- kernel_sample_count     = { type = "BIGINT", unit = "count", doc = "Those at which a kernel runs." }
-- sm_active_share         = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Mean share of the SMs with work. Each sample counts the same, as the profiler takes them at a fixed rate; null without samples of this metric, as in the columns below." }
-- sm_in_kernels_share     = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "The same over the samples at which a kernel runs." }
-- tensor_active_share     = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Mean activity of the tensor cores, as a share of their peak." }
-- tensor_in_kernels_share = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "The same over the samples at which a kernel runs." }
-- dram_read_share         = { type = "DOUBLE", null = true, unit = "ratio", doc = "Mean bandwidth of reads from device memory, as a share of the peak bandwidth." }
-- dram_write_share        = { type = "DOUBLE", null = true, unit = "ratio", doc = "Mean bandwidth of writes." }
-- counter_mean            = { type = "DOUBLE", null = true, doc = "Mean value of a hardware counter, in the unit that its name says." }
-- dram_bytes_per_ns       = { type = "DOUBLE", null = true, unit = "bytes_per_ns", better = "higher", doc = "Both as bandwidth; null if the trace does not record the peak bandwidth of the device." }
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
      step,
      ts_ns,
      kernel_id,
      in_window,
      counter,
      value,
      CASE WHEN quantity = 'sm_active' THEN share::DECIMAL(18, 6) END AS sm,
      CASE WHEN quantity = 'tensor_active' THEN share::DECIMAL(18, 6) END AS tensor,
      CASE WHEN quantity = 'dram_read' THEN share::DECIMAL(18, 6) END AS dram_read,
      CASE WHEN quantity = 'dram_write' THEN share::DECIMAL(18, 6) END AS dram_write
    FROM gpu_samples
  ),
  scoped AS (
    SELECT run_id, rank, device, step, counter AS name, ts_ns, kernel_id IS NOT NULL AS in_kernel, value, sm, tensor, dram_read, dram_write
    FROM samples
    WHERE step IS NOT NULL AND NOT $by_kernel
    UNION ALL
    SELECT run_id, rank, device, NULL, counter, ts_ns, kernel_id IS NOT NULL, value, sm, tensor, dram_read, dram_write
    FROM samples
    WHERE in_window AND NOT $by_kernel
    UNION ALL
    SELECT run_id, rank, samples.device, NULL, kernels.name, samples.ts_ns, TRUE, NULL, sm, tensor, dram_read, dram_write
    FROM samples
    JOIN (SELECT run_id, rank, event_id AS kernel_id, name FROM kernels) AS kernels USING (run_id, rank, kernel_id)
    WHERE $by_kernel AND counter IS NULL
  ),
  summed AS (
    SELECT
      run_id,
      rank,
      device,
      step,
      name,
      count(DISTINCT ts_ns) AS sample_count,
      count(DISTINCT ts_ns) FILTER (in_kernel) AS kernel_sample_count,
      sum(sm) / count(sm) AS sm_active_share,
      sum(sm) FILTER (in_kernel) / count(sm) FILTER (in_kernel) AS sm_in_kernels_share,
      sum(tensor) / count(tensor) AS tensor_active_share,
      sum(tensor) FILTER (in_kernel) / count(tensor) FILTER (in_kernel) AS tensor_in_kernels_share,
      sum(dram_read) / count(dram_read) AS dram_read_share,
      sum(dram_write) / count(dram_write) AS dram_write_share,
      sum(value::DECIMAL(38, 6)) / count(value) AS counter_mean
    FROM scoped
    GROUP BY run_id, rank, device, step, name
  )
SELECT
  summed.run_id,
  summed.rank,
  summed.device,
  summed.step,
  summed.name,
  summed.sample_count,
  summed.kernel_sample_count,
  summed.sm_active_share,
  summed.sm_in_kernels_share,
  summed.tensor_active_share,
  summed.tensor_in_kernels_share,
  summed.dram_read_share,
  summed.dram_write_share,
  summed.counter_mean,
  (summed.dram_read_share + summed.dram_write_share) * peaks.memory_bytes_per_second / 1e9 AS dram_bytes_per_ns
FROM summed
LEFT JOIN recorded_devices AS peaks
  ON peaks.run_id = summed.run_id AND peaks.rank = summed.rank AND peaks.device::VARCHAR = summed.device
