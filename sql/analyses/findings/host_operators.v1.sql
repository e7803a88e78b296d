-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "host_operators"
-- version  = 1
-- summary  = "Names the operator with the most self time in CPU-only runs."
-- requires = ["host_occurrences@1"]
-- needs    = ["cpu_only"]
-- excluded_by = ["no_work"]
-- limited_by = ["lost_events", "several_processes"]
-- confidence = "medium"
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
SELECT
  run_id,
  rank,
  steps,
  analyzed_ns,
  is_operator AND NOT is_copy AND NOT starts_with(label, 'c10d::') AS matches,
  label,
  self_ns AS lost_ns,
  slice_id AS event_id,
  step,
  start_ns AS from_ns,
  end_ns AS to_ns,
  {
    subject: 'operator',
    saving_limit: 'all time in this operator, which a faster one saves in part',
    observation: 'The operator with the most self time, {culprit}, takes {lost} of the training thread.',
    advice: 'Check the shapes of its inputs (op_summary with by_shapes), the number of threads (torch.set_num_threads), and whether torch.compile, a fused operator or a lower precision does the same work faster.',
    evidence: 'host_account',
    evidence_filter: 'category = ''operator''',
    only_largest: TRUE,
    is_context: TRUE
  } AS words
FROM host_occurrences
