-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "low_roofline_hot_ops"
-- version  = 1
-- summary  = "Detects operators that take much time and come close neither to the peak rate nor to the memory bandwidth of the device."
-- requires = ["analyzed_segments@1", "op_limits@1"]
-- needs    = ["gpu", "shapes"]
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.4 }
-- max_roofline   = { type = "DOUBLE", unit = "ratio", default = 0.3, min = 0, max = 1, doc = "Operators that come closer to the limits of the device than this are not counted." }
-- min_op_share   = { type = "DOUBLE", unit = "ratio", default = 0.03, min = 0, doc = "Lowest share of the analyzed time that all operators of the same name and shapes take." }
-- min_gpu_ns     = { type = "BIGINT", unit = "ns", default = 20000, min = 0, doc = "Shorter operators are not counted: they are too short to reach any limit." }
--
-- [columns]
-- subject   = { doc = "Always: operators. Ranks without input shapes or on a device without known peaks (`device_specs`) have no row." }
-- share     = { doc = "Time that such operators lose against the limits of the device, as a share of analyzed_ns." }
-- count     = { doc = "Number of such operators." }
-- culprit   = { doc = "Name and shapes of the operator that loses most." }
-- event_id  = { doc = "The main kernel of the longest one." }
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
      bound,
      coalesce(greatest(hardware_flop / limit_flop_per_ns, bytes / limit_bytes_per_ns), 0) / gpu_union_ns AS roofline
    FROM op_limits
    WHERE gpu_union_ns >= $min_gpu_ns AND (hardware_flop = 0 OR limit_flop_per_ns IS NOT NULL) AND bytes IS NOT NULL
  ),
  slow AS (
    -- A lower bound of the work gives no roofline.
    SELECT run_id, rank, kernel_id, label, roofline
    FROM limited
    WHERE roofline < $max_roofline AND bound <> 'lower'
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
  hot AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.start_ns,
      segment.segment_ns,
      segment.step,
      segment.kernel_id,
      segment.label,
      segment.lost_ns
    FROM segment
    JOIN analyzed ON analyzed.run_id = segment.run_id AND analyzed.rank = segment.rank
    QUALIFY
      sum(segment.segment_ns) OVER (PARTITION BY segment.run_id, segment.rank, segment.label)
      >= $min_op_share * analyzed.analyzed_ns
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
    FROM hot
    GROUP BY run_id, rank
  ),
  part AS (
    SELECT
      run_id,
      rank,
      label,
      sum(lost_ns)::BIGINT AS part_ns,
      sum(segment_ns)::BIGINT AS part_segment_ns
    FROM hot
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
  'operators' AS subject,
  analyzed.steps > 0 AS is_representative,
  coalesce(per_rank.saving_ns, 0) / analyzed.analyzed_ns AS share,
  share >= $warning_share AS is_finding,
  coalesce(per_rank.count, 0) AS count,
  analyzed.steps,
  analyzed.analyzed_ns,
  coalesce(per_rank.saving_ns, 0) AS saving_ns,
  'the time beyond what the FLOP or the bytes need at the peak rates, which no kernel reaches fully' AS saving_limit,
  'low' AS confidence,
  'Operators that reach less than ' || round(100 * $max_roofline)::INTEGER || ' % of the peak rate and of the memory bandwidth lose {lost}. The largest part is ' || coalesce(largest.culprit || ', which reaches ' || CASE WHEN round(100 * largest.roofline) < 1 THEN 'less than 1' ELSE round(100 * largest.roofline)::INTEGER::VARCHAR END || ' %', 'unknown') || ' ({detail}).' AS observation,
  'Look for a faster implementation: a fused kernel, another memory layout, larger batches, torch.compile.' AS advice,
  'op_work_summary' AS evidence,
  'bound_by = ''neither''' AS evidence_filter,
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
