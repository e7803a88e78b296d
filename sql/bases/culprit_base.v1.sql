-- /// tw
-- like    = "findings_base@1"
-- summary = "Findings that add up occurrences and name what causes most of their time; a rule gives a row per interval."
-- ///
-- A rule returns, for each interval or slice of the analyzed time, run_id, rank, steps, analyzed_ns, matches
-- (whether it counts), label (what caused it), lost_ns, event_id, step, from_ns, to_ns, and words: a STRUCT
-- of the rule's texts: subject, saving_limit, observation (with {culprit}), advice, evidence, evidence_filter,
-- only_largest (only what causes most counts), is_context. Each subject of a rank is a row. Words that depend on
-- the label are those of what causes most. It may return doubt, whole_ns (share is a share of it, instead of
-- analyzed_ns) and may_find (FALSE if another condition of the rule does not hold), the same for all of a subject.
SELECT
  run_id,
  rank,
  subject,
  share >= $warning_share AND may_find AS is_finding,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  words.saving_limit AS saving_limit,
  doubt,
  replace(words.observation, '{culprit}', coalesce(culprit, 'unknown')) AS observation,
  words.advice AS advice,
  words.evidence AS evidence,
  words.evidence_filter AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  culprit,
  part_ns // greatest(steps, 1) AS detail_ns,
  words.is_context AS is_context
FROM (
  WITH
    part AS (
      -- A row per subject and label; the words of each interval are long, so they are not kept.
      SELECT
        run_id,
        rank,
        words.subject AS subject,
        CASE WHEN matches THEN label END AS label,
        matches,
        any_value(steps) AS steps,
        any_value(analyzed_ns) AS analyzed_ns,
        any_value(whole_ns) AS whole_ns,
        any_value(may_find) AS may_find,
        any_value(doubt) AS doubt,
        any_value(words) AS words,
        count(*) AS count,
        sum(lost_ns)::BIGINT AS part_ns,
        arg_max(event_id, (lost_ns, -from_ns)) AS event_id,
        max((lost_ns, -from_ns)) FILTER (event_id IS NOT NULL) AS event_order,
        arg_max(step, (lost_ns, -from_ns)) AS step,
        max((lost_ns, -from_ns)) FILTER (step IS NOT NULL) AS step_order,
        arg_max(from_ns, (lost_ns, -from_ns)) AS from_ns,
        arg_max(to_ns, (lost_ns, -from_ns)) AS to_ns,
        max((lost_ns, -from_ns)) AS worst_order
      FROM (
        -- What a rule does not return is null.
        SELECT NULL::INTEGER AS doubt, NULL::BIGINT AS whole_ns, NULL::BOOLEAN AS may_find
        WHERE FALSE
        UNION ALL BY NAME
        FROM base_input
      ) AS found
      GROUP BY run_id, rank, subject, CASE WHEN matches THEN label END, matches
    ),
    largest AS (
      SELECT run_id, rank, subject, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
      FROM part
      WHERE matches
      GROUP BY run_id, rank, subject
    ),
    counted AS (
      SELECT
        part.run_id,
        part.rank,
        part.subject,
        part.steps,
        part.analyzed_ns,
        part.whole_ns,
        part.may_find,
        part.doubt,
        part.words,
        part.count,
        part.part_ns,
        part.event_id,
        part.event_order,
        part.step,
        part.step_order,
        part.from_ns,
        part.to_ns,
        part.worst_order,
        largest.culprit,
        largest.part_ns AS culprit_ns,
        part.matches AND part.label = largest.culprit AS is_culprit,
        part.matches AND (NOT part.words.only_largest OR is_culprit) AS counts
      FROM part
      LEFT JOIN largest USING (run_id, rank, subject)
    )
  SELECT
    run_id,
    rank,
    subject,
    any_value(steps) AS steps,
    any_value(analyzed_ns) AS analyzed_ns,
    coalesce(any_value(words) FILTER (is_culprit), any_value(words)) AS words,
    any_value(doubt) AS doubt,
    coalesce(any_value(may_find), TRUE) AS may_find,
    any_value(culprit) AS culprit,
    any_value(culprit_ns) AS part_ns,
    coalesce(sum(count) FILTER (counts), 0)::BIGINT AS count,
    coalesce(sum(part_ns) FILTER (counts), 0)::BIGINT AS saving_ns,
    saving_ns / coalesce(any_value(whole_ns), any_value(analyzed_ns)) AS share,
    arg_max(event_id, event_order) FILTER (counts) AS event_id,
    arg_max(step, step_order) FILTER (counts) AS step,
    arg_max(from_ns, worst_order) FILTER (counts) AS from_ns,
    arg_max(to_ns, worst_order) FILTER (counts) AS to_ns
  FROM counted
  GROUP BY run_id, rank, subject
) AS total
