-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "host_operators"
-- version  = 1
-- summary  = "Names the operator with the most self time in CPU-only runs."
-- requires = ["host_occurrences@1"]
--
-- [params]
-- warning_share  = { default = 0.2 }
-- critical_share = { default = 0.5 }
--
-- [columns]
-- subject   = { doc = "Always: operator. Ranks with GPU activity have no row." }
-- severity  = { doc = "info (an operator that takes much time is not a fault in itself) or none." }
-- share     = { doc = "Self time of the operator with the most self time on the training thread, without copies and collectives, as a share of analyzed_ns." }
-- count     = { doc = "Number of its calls." }
-- culprit   = { doc = "The operator." }
-- event_id  = { doc = "The longest such slice." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  occurrence AS (
    SELECT run_id, rank, slice_id, label, is_operator AND NOT is_copy AND NOT starts_with(label, 'c10d::') AS matches, step, start_ns, end_ns, self_ns, steps, analyzed_ns
    FROM host_occurrences
  ),
  part AS (
    SELECT run_id, rank, label, sum(self_ns)::BIGINT AS part_ns
    FROM occurrence
    WHERE matches
    GROUP BY run_id, rank, label
  ),
  largest AS (
    SELECT run_id, rank, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
    FROM part
    GROUP BY run_id, rank
  ),
  per_rank AS (
    SELECT
      occurrence.run_id,
      occurrence.rank,
      any_value(occurrence.steps) AS steps,
      any_value(occurrence.analyzed_ns) AS analyzed_ns,
      any_value(largest.culprit) AS culprit,
      any_value(largest.part_ns) AS part_ns,
      count(*) FILTER (matches AND label = largest.culprit) AS count,
      coalesce(sum(self_ns) FILTER (matches AND label = largest.culprit), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(occurrence.analyzed_ns) AS share,
      arg_max(slice_id, (self_ns, -start_ns)) FILTER (matches AND label = largest.culprit) AS event_id,
      arg_max(step, (self_ns, -start_ns)) FILTER (matches AND label = largest.culprit) AS step,
      arg_max(start_ns, (self_ns, -start_ns)) FILTER (matches AND label = largest.culprit) AS from_ns,
      arg_max(end_ns, (self_ns, -start_ns)) FILTER (matches AND label = largest.culprit) AS to_ns
    FROM occurrence
    LEFT JOIN largest ON largest.run_id = occurrence.run_id AND largest.rank = occurrence.rank
    GROUP BY occurrence.run_id, occurrence.rank
  )
SELECT
  run_id,
  rank,
  'operator' AS subject,
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'all time in this operator, which a faster one saves in part' AS saving_limit,
  'medium' AS confidence,
  'The operator with the most self time, ' || coalesce(culprit, 'unknown') || ', takes {lost} of the training thread.' AS observation,
  'Check the shapes of its inputs (op_summary with by_shapes), the number of threads (torch.set_num_threads), and whether torch.compile, a fused operator or a lower precision does the same work faster.' AS advice,
  'host_account' AS evidence,
  'category = ''operator''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  culprit,
  part_ns // greatest(steps, 1) AS detail_ns,
  TRUE AS is_context
FROM per_rank
