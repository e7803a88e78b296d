-- /// tw
-- summary     = "What every finding rule returns; a rule gives its condition, its numbers and its words."
-- requires    = ["rank_limits@1", "rank_advice@1"]
-- excluded_by = ["lost_records", "no_work"]
-- limited_by  = ["lost_events", "several_processes"]
-- grain       = ["run_id", "rank", "subject"]
-- order       = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", unit = "ratio", min = 0, doc = "Critical threshold." }
-- minor_share    = { type = "DOUBLE", unit = "ratio", min = 0, default = 0.01, doc = "A finding that saves a smaller share of analyzed_ns is info at most." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "What the finding is about." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (not a fault in itself, one whose causes have separate findings, or one with a saving_share below minor_share) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Lost time as a share of analyzed_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of occurrences." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its profiling window if there are none: from first to last GPU activity, or host slice." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: all such time." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low: that of the rule (`tw describe`), one lower if a reason of `recording` limits it, and lower where the rule says why; low if the trace has no complete step, because it may not be representative." }
-- observation     = { type = "VARCHAR", doc = "What was observed and what causes most of it, in one or two sentences." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows. It names the rank if the rank's rows are different when only this rank is selected." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The event of the worst occurrence." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
-- step            = { type = "BIGINT", unit = "id", null = true, doc = "The step of the worst occurrence; null outside of steps and where it is not known." }
-- culprit         = { type = "VARCHAR", null = true, doc = "The kernel, operator, call, collective or rank that causes most of it; null if the trace does not show it." }
-- saving_step_ns  = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "saving_ns per step, rounded down; null if the trace has no complete step." }
-- saving_share    = { type = "DOUBLE", unit = "ratio", null = true, better = "lower", doc = "saving_ns as a share of analyzed_ns." }
-- ///
-- A rule may also return is_finding (by default, the share reaches the warning threshold), is_representative (by
-- default, the trace has a complete step), step, culprit, is_context (severity info at most), detail_ns, doubt (levels of confidence below
-- that of the rule) and unchecked (why it could not be checked). Its observation may contain {lost}, {worst}, {where} and {detail}: the saving, the
-- duration and step of the worst occurrence, detail_ns.
SELECT
  finding.run_id,
  finding.rank,
  subject,
  CASE
    WHEN NOT is_finding OR coalesce(limits.why_not, unchecked) IS NOT NULL THEN 'none'
    WHEN is_context OR saving_share < $minor_share THEN 'info'
    WHEN share < $critical_share THEN 'warning'
    ELSE 'critical'
  END AS severity,
  share,
  $warning_share AS threshold,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  saving_limit,
  CASE
    WHEN NOT is_representative THEN 'low'
    ELSE ['low', 'medium', 'high'][greatest(list_position(['low', 'medium', 'high'], $confidence) - doubt - (limits.limit_text IS NOT NULL)::INTEGER, 1)]
  END AS confidence,
  CASE
    WHEN coalesce(limits.why_not, unchecked) IS NOT NULL THEN 'Could not be checked: ' || coalesce(limits.why_not, unchecked) || '.'
    WHEN count = 0 AND NOT is_finding AND limits.limit_text IS NOT NULL
      THEN 'No such case in what was recorded, but not all could be checked: ' || limits.limit_text || '.'
    WHEN count = 0 AND NOT is_finding THEN 'No such case was found.'
    ELSE
      replace(
        replace(
          replace(
            replace(
              observation,
              '{lost}',
              durations[1]
              || CASE WHEN steps > 0 THEN ' per step (' ELSE ' of the profiling window (' END
              || CASE WHEN saving_share > 0 AND saving_share * 1000 < 1 THEN '< 0.1' ELSE format('{:.1f}', coalesce(saving_share, 0) * 100) END
              || ' %)'
            ),
            '{worst}',
            durations[2]
          ),
          '{detail}',
          durations[3]
        ),
        '{where}',
        CASE WHEN step IS NULL THEN '' ELSE ' in step ' || step END
      )
  END AS observation,
  coalesce(other.advice, finding.advice) AS advice,
  evidence,
  evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  culprit,
  saving_step_ns,
  saving_share
FROM (
  SELECT
    run_id,
    rank,
    subject,
    coalesce(is_finding, share >= $warning_share) AS is_finding,
    coalesce(is_representative, steps > 0) AS is_representative,
    is_context,
    share,
    count,
    steps,
    analyzed_ns,
    saving_ns,
    saving_limit,
    coalesce(doubt, 0) AS doubt,
    observation,
    advice,
    evidence,
    evidence_filter,
    event_id,
    from_ns,
    to_ns,
    step,
    culprit,
    unchecked,
    CASE WHEN steps > 0 THEN saving_ns // steps END AS saving_step_ns,
    saving_ns / analyzed_ns AS saving_share,
    [
      CASE
        WHEN ns // 1000000000 > 0 THEN format('{:.2f} s', ns / 1000000000)
        WHEN ns // 1000000 > 0 THEN format('{:.1f} ms', ns / 1000000)
        WHEN ns // 1000 > 0 THEN format('{:.1f} µs', ns / 1000)
        ELSE ns || ' ns'
      END
      FOR ns IN [coalesce(saving_step_ns, saving_ns, 0), coalesce(to_ns - from_ns, 0), coalesce(detail_ns, 0)]
    ] AS durations
  FROM (
    -- What a rule does not return is null.
    SELECT
      NULL::BOOLEAN AS is_finding,
      NULL::BOOLEAN AS is_representative,
      NULL::BIGINT AS step,
      NULL::VARCHAR AS culprit,
      NULL::BOOLEAN AS is_context,
      NULL::BIGINT AS detail_ns,
      NULL::INTEGER AS doubt,
      NULL::VARCHAR AS unchecked
    WHERE FALSE
    UNION ALL BY NAME
    FROM base_input
  ) AS input
) AS finding
LEFT JOIN (
  SELECT
    run_id,
    rank,
    min(text) FILTER (state = 'not a basis' AND list_contains($excluded_by, reason)) AS why_not,
    min(text) FILTER (list_contains($limited_by, reason)) AS limit_text
  FROM rank_limits
  GROUP BY run_id, rank
) AS limits
  ON limits.run_id = finding.run_id AND limits.rank = finding.rank
LEFT JOIN (
  -- Advice for programs that do not use PyTorch, if the rule has any.
  SELECT run_id, rank, advice
  FROM rank_advice
  WHERE rule = $rule
) AS other
  ON other.run_id = finding.run_id AND other.rank = finding.rank
