-- /// tw
-- kind     = "view"
-- name     = "kernel_roofs"
-- version  = 1
-- summary  = "Time that each kernel's computation takes of each step, and what of it the kernel would need at the roof."
-- requires = ["analyzed_segments@1", "op_limits@1", "kernels@1"]
-- grain    = ["run_id", "rank", "step", "kernel"]
-- order    = ["run_id", "rank", "step", "kernel"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- step       = { type = "BIGINT", null = true, unit = "id", doc = "The step whose period contains it; null without complete steps." }
-- kernel     = { type = "VARCHAR", doc = "Short name of the kernel." }
-- kernel_ns  = { type = "BIGINT", unit = "ns", doc = "Sum of the segments that are attributed to it." }
-- roof_ns    = { type = "BIGINT", unit = "ns", doc = "The same with the work of its operators at the peak rate or the peak memory bandwidth, whichever takes longer. Segments of unknown work, or on a device without known peaks, keep their time." }
-- has_limits = { type = "BOOLEAN", doc = "True if the work of any segment, and the peaks for it, are known." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  timed AS (
    SELECT
      segment.run_id,
      segment.rank,
      CASE WHEN segment.steps > 0 THEN segment.step END AS step,
      coalesce(nullif(kernels.short_name, ''), kernels.name, 'unknown') AS kernel,
      segment.segment_ns,
      CASE
        WHEN limits.bound <> 'lower'
          AND limits.bytes IS NOT NULL
          AND limits.limit_bytes_per_ns IS NOT NULL
          AND (limits.hardware_flop = 0 OR limits.limit_flop_per_ns IS NOT NULL)
          THEN
            greatest(coalesce(limits.hardware_flop / limits.limit_flop_per_ns, 0), limits.bytes / limits.limit_bytes_per_ns)
            / limits.gpu_union_ns
      END AS roofline
    FROM analyzed_segments AS segment
    JOIN kernels
      ON kernels.run_id = segment.run_id AND kernels.rank = segment.rank AND kernels.event_id = segment.kernel_id
    LEFT JOIN op_limits AS limits
      ON limits.run_id = segment.run_id AND limits.rank = segment.rank AND limits.kernel_id = segment.kernel_id
    WHERE segment.kind = 'computation'
  )
SELECT
  run_id,
  rank,
  step,
  kernel,
  sum(segment_ns)::BIGINT AS kernel_ns,
  sum(ceil(segment_ns * least(coalesce(roofline, 1), 1)))::BIGINT AS roof_ns,
  count(roofline) > 0 AS has_limits
FROM timed
GROUP BY run_id, rank, step, kernel
