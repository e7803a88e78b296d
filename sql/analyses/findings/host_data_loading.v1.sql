-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "host_data_loading"
-- version  = 1
-- summary  = "Detects CPU-only runs whose training thread loads data, or waits for it."
-- requires = ["host_occurrences@1"]
-- needs    = ["cpu_only"]
-- excluded_by = ["no_work"]
-- limited_by = ["lost_events", "several_processes"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: data loader. Ranks with GPU activity have no row." }
-- share     = { doc = "Time of the training thread in slices that load data, as a share of analyzed_ns." }
-- count     = { doc = "Number of such slices." }
-- culprit   = { doc = "The slice with most of this time, by name." }
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
  is_loading AS matches,
  label,
  self_ns AS lost_ns,
  slice_id AS event_id,
  step,
  start_ns AS from_ns,
  end_ns AS to_ns,
  {
    subject: 'data loader',
    saving_limit: 'all time in these slices, with data that is ready when the step needs it',
    observation: 'The training thread loads data, or waits for it, for {lost}. The largest part is {culprit} ({detail}); the longest takes {worst}{where}.',
    advice: 'Load data in worker processes (num_workers above 0, persistent_workers=True), prefetch more batches, or do less work per sample.',
    evidence: 'host_account',
    evidence_filter: 'category = ''data_loading''',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM host_occurrences
