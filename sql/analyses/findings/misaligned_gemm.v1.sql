-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "misaligned_gemm"
-- version  = 1
-- summary  = "Detects matrix products whose sizes are not multiples of 8, so that they run in slow unaligned kernels."
-- requires = ["analyzed_segments@1", "op_limits@1"]
-- needs    = ["gpu", "shapes"]
--
-- [params]
-- warning_share  = { default = 0.03 }
-- critical_share = { default = 0.15 }
-- max_roofline   = { type = "DOUBLE", unit = "ratio", default = 0.5, min = 0, max = 1, doc = "Products that come closer to the limits of the device than this are not counted." }
--
-- [columns]
-- subject   = { doc = "Always: matrix products. Ranks without input shapes or on a device without known peaks (`device_specs`) have no row." }
-- share     = { doc = "Time that such products lose against the limits of the device, as a share of analyzed_ns." }
-- count     = { doc = "Number of such products." }
-- culprit   = { doc = "Name and shapes of the product that loses most." }
-- event_id  = { doc = "The kernel of the longest one." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  limited AS (
    SELECT
      run_id,
      rank,
      kernel_id,
      name || ' ' || shapes AS label,
      coalesce(greatest(hardware_flop / limit_flop_per_ns, bytes / limit_bytes_per_ns), 0) / gpu_union_ns AS roofline
    FROM op_limits
    WHERE
      family = 'gemm'
      AND (m % 8 <> 0 OR n % 8 <> 0 OR k % 8 <> 0)
      AND regexp_matches(kernel_name, 'align1(\D|$)')
  ),
  slow AS (
    SELECT run_id, rank, kernel_id, label, roofline
    FROM limited
    WHERE roofline < $max_roofline
  ),
  analyzed AS (
    SELECT run_id, rank, any_value(steps) AS steps, any_value(analyzed_ns) AS analyzed_ns
    FROM analyzed_segments
    GROUP BY run_id, rank
  ),
  segment AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.start_ns,
      segment.segment_ns,
      segment.step,
      segment.kernel_id,
      slow.label,
      floor(segment.segment_ns * (1 - slow.roofline))::BIGINT AS lost_ns
    FROM analyzed_segments AS segment
    JOIN slow
      ON slow.run_id = segment.run_id AND slow.rank = segment.rank AND slow.kernel_id = segment.kernel_id
  ),
  per_rank AS (
    SELECT
      run_id,
      rank,
      count(DISTINCT kernel_id) AS count,
      sum(lost_ns)::BIGINT AS saving_ns,
      arg_max(kernel_id, (segment_ns, -start_ns)) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) AS from_ns,
      arg_max(step, (segment_ns, -start_ns)) AS step,
      from_ns + max(segment_ns) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  ),
  part AS (
    SELECT
      run_id,
      rank,
      label,
      sum(lost_ns)::BIGINT AS part_ns,
      sum(segment_ns)::BIGINT AS part_segment_ns
    FROM segment
    GROUP BY run_id, rank, label
  ),
  largest AS (
    SELECT
      run_id,
      rank,
      arg_max(label, (part_ns, label)) AS culprit,
      max(part_ns) AS part_ns,
      arg_max(1 - part_ns / part_segment_ns, (part_ns, label)) AS roofline
    FROM part
    GROUP BY run_id, rank
  )
SELECT
  analyzed.run_id,
  analyzed.rank,
  'matrix products' AS subject,
  analyzed.steps > 0 AS is_representative,
  coalesce(per_rank.saving_ns, 0) / analyzed.analyzed_ns AS share,
  share >= $warning_share AS is_finding,
  coalesce(per_rank.count, 0) AS count,
  analyzed.steps,
  analyzed.analyzed_ns,
  coalesce(per_rank.saving_ns, 0) AS saving_ns,
  'the time beyond what the FLOP or the bytes need at the peak rates' AS saving_limit,
  'medium' AS confidence,
  'Matrix products with sizes that are not multiples of 8 run in unaligned kernels and lose {lost}. The largest part is ' || coalesce(largest.culprit, 'unknown') || ' ({detail}).' AS observation,
  'Pad these sizes to multiples of 8 (better 64): hidden sizes, vocabulary, batch.' AS advice,
  'op_work_summary' AS evidence,
  'roofline < ' || $max_roofline AS evidence_filter,
  per_rank.event_id,
  per_rank.from_ns,
  per_rank.to_ns,
  per_rank.step,
  largest.culprit,
  largest.part_ns // greatest(analyzed.steps, 1) AS detail_ns
FROM analyzed
LEFT JOIN per_rank ON per_rank.run_id = analyzed.run_id AND per_rank.rank = analyzed.rank
LEFT JOIN largest ON largest.run_id = analyzed.run_id AND largest.rank = analyzed.rank
SEMI JOIN op_limits AS known
  ON known.run_id = analyzed.run_id AND known.rank = analyzed.rank AND known.limit_bytes_per_ns IS NOT NULL
