-- /// tw
-- like    = "findings_base@1"
-- summary = "Findings about operators that are slower than the device could be; a rule gives a row per operator."
-- ///
-- A rule requires analyzed_segments and returns, for each operator in `op_limits`, run_id, rank, kernel_id,
-- label, roofline, matches (whether it counts), is_known (whether a limit of the device is known; without any
-- the rank could not be checked), device_name, min_share (of the analyzed time, below which a label does not
-- count), and words: a STRUCT of its texts: subject, saving_limit, observation (with {culprit} and {reached}),
-- advice, evidence, evidence_filter. It may return doubt.
SELECT
  run_id,
  rank,
  words.subject AS subject,
  saving_ns / analyzed_ns AS share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  words.saving_limit AS saving_limit,
  replace(
    replace(words.observation, '{culprit}', coalesce(culprit, 'unknown')),
    '{reached}',
    coalesce(', which reaches ' || CASE WHEN round(100 * roofline) < 1 THEN 'less than 1' ELSE round(100 * roofline)::INTEGER::VARCHAR END || ' %', '')
  ) AS observation,
  words.advice AS advice,
  words.evidence AS evidence,
  words.evidence_filter AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  culprit,
  doubt,
  part_ns // greatest(steps, 1) AS detail_ns,
  CASE
    WHEN NOT is_known THEN 'the peak rates of ' || coalesce(device_name, 'the device') || ' are not known'
  END AS unchecked
FROM (
  WITH
    named AS (
      SELECT
        run_id,
        rank,
        any_value(words) AS words,
        bool_or(is_known) AS is_known,
        min(device_name) AS device_name,
        max(doubt) AS doubt
      -- What a rule does not return is null.
      FROM (SELECT NULL::INTEGER AS doubt WHERE FALSE UNION ALL BY NAME FROM base_input)
      GROUP BY run_id, rank
    ),
    analyzed AS (
      SELECT run_id, rank, any_value(steps) AS steps, any_value(analyzed_ns) AS analyzed_ns
      FROM analyzed_segments
      GROUP BY run_id, rank
    ),
    hot AS (
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
      JOIN base_input AS slow USING (run_id, rank, kernel_id)
      WHERE slow.matches AND slow.is_known
      QUALIFY
        sum(segment.segment_ns) OVER (PARTITION BY segment.run_id, segment.rank, slow.label)
        >= slow.min_share * segment.analyzed_ns
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
    run_id,
    rank,
    steps,
    analyzed_ns,
    words,
    doubt,
    is_known,
    device_name,
    coalesce(count, 0) AS count,
    coalesce(saving_ns, 0) AS saving_ns,
    event_id,
    from_ns,
    to_ns,
    step,
    culprit,
    part_ns,
    roofline
  FROM analyzed
  JOIN named USING (run_id, rank)
  LEFT JOIN per_rank USING (run_id, rank)
  LEFT JOIN largest USING (run_id, rank)
) AS total
