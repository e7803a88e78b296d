-- /// tw
-- summary = "What every finding rule returns; a rule gives its condition, its numbers and its words."
-- grain   = ["run_id", "rank", "subject"]
-- order   = ["run_id", "rank", "-share"]
--
-- [params]
-- warning_share  = { type = "DOUBLE", unit = "ratio", min = 0, doc = "Warning threshold: lowest share that is a finding." }
-- critical_share = { type = "DOUBLE", unit = "ratio", min = 0, doc = "Critical threshold." }
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- subject         = { type = "VARCHAR", doc = "What the finding is about." }
-- severity        = { type = "VARCHAR", doc = "critical, warning, info (above the threshold, but the trace has no complete step, so it may not be representative) or none." }
-- share           = { type = "DOUBLE", unit = "ratio", better = "lower", doc = "Lost time as a share of analyzed_ns." }
-- threshold       = { type = "DOUBLE", unit = "ratio", doc = "Warning threshold." }
-- count           = { type = "BIGINT", unit = "count", better = "lower", doc = "Number of occurrences." }
-- steps           = { type = "BIGINT", unit = "count", doc = "Complete steps analyzed; 0 if there are none." }
-- analyzed_ns     = { type = "BIGINT", unit = "ns", doc = "Analyzed time: the rank's complete steps, or its GPU window if there are none." }
-- saving_ns       = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Upper bound on the time saved in the analyzed interval: all such time." }
-- saving_limit    = { type = "VARCHAR", doc = "What limits the saving. Savings of different findings overlap and do not add up." }
-- confidence      = { type = "VARCHAR", doc = "Confidence: high, medium or low." }
-- observation     = { type = "VARCHAR", doc = "What was observed, in one sentence." }
-- advice          = { type = "VARCHAR", doc = "What to try." }
-- evidence        = { type = "VARCHAR", doc = "The analysis that shows the evidence." }
-- evidence_filter = { type = "VARCHAR", null = true, doc = "SQL condition that selects the relevant rows; null for all rows." }
-- event_id        = { type = "BIGINT", unit = "id", null = true, doc = "The event of the worst occurrence." }
-- from_ns         = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Start of the worst occurrence." }
-- to_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "End of the worst occurrence." }
-- ///
-- A rule also returns is_finding (the share reaches the warning threshold, and any other conditions of the
-- rule hold) and is_representative (FALSE if the trace has no complete step and the rule needs one).
SELECT
  run_id,
  rank,
  subject,
  CASE
    WHEN NOT is_finding THEN 'none'
    WHEN NOT is_representative THEN 'info'
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
  CASE WHEN is_representative THEN confidence ELSE 'low' END AS confidence,
  observation,
  advice,
  evidence,
  evidence_filter,
  event_id,
  from_ns,
  to_ns
FROM base_input
