-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "host_copies"
-- version  = 1
-- summary  = "Detects CPU-only runs that spend much of their time copying and converting tensors."
-- requires = ["host_occurrences@1"]
-- needs    = ["cpu_only"]
-- excluded_by = ["no_work"]
-- limited_by = ["lost_events", "several_processes"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.3 }
--
-- [columns]
-- subject   = { doc = "Always: tensor copies. Ranks with GPU activity have no row." }
-- share     = { doc = "Self time of operators that copy, convert or join tensors (copy_, to, clone, contiguous, cat, stack) on the training thread, as a share of analyzed_ns." }
-- count     = { doc = "Number of such operators." }
-- culprit   = { doc = "The operator with most of this time." }
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
  is_copy AS matches,
  label,
  self_ns AS lost_ns,
  slice_id AS event_id,
  step,
  start_ns AS from_ns,
  end_ns AS to_ns,
  {
    subject: 'tensor copies',
    saving_limit: 'all time in these operators; some copies are necessary',
    observation: 'Copies and conversions of tensors take {lost} of the training thread. The largest part is {culprit} ({detail}).',
    advice: 'Keep tensors in one layout and type (channels_last and bfloat16 throughout, no .to() in the loop), write into preallocated tensors instead of cat or stack, and use torch.compile to fuse the copies.',
    evidence: 'host_account',
    evidence_filter: 'category = ''operator'' AND name IN (''aten::copy_'', ''aten::clone'', ''aten::cat'')',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM host_occurrences
