-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "layout_conversions"
-- version  = 1
-- summary  = "Detects kernels that convert tensors between the memory layouts NCHW and NHWC around convolutions."
-- requires = ["analyzed_segments@1", "kernels@1", "events@1"]
-- needs    = ["gpu"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.3 }
--
-- [columns]
-- subject   = { doc = "Always: layout conversions." }
-- share     = { doc = "Time attributed to kernels of libraries that transpose between layouts, by name, as a share of analyzed_ns." }
-- count     = { doc = "Number of such segments." }
-- culprit   = { doc = "The kernel, and the operator enclosing its launch, with most of this time." }
-- event_id  = { doc = "The kernel of the longest such segment." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  coalesce(regexp_matches(kernels.name, '(?i)nchwToNhwc|nhwcToNchw|batched_transpose|transpose_(nchw|nhwc)|nhwc2nchw|nchw2nhwc'), FALSE) AS matches,
  coalesce(kernels.short_name, kernels.name)[:80] || coalesce(' under ' || op.name, '') AS label,
  segment.segment_ns AS lost_ns,
  segment.kernel_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  {
    subject: 'layout conversions',
    saving_limit: 'the time in these kernels, if the tensors have the layout that the convolutions use',
    observation: 'Kernels that convert between the layouts NCHW and NHWC take {lost}. The largest part is {culprit} ({detail}).',
    advice: 'Keep the model and its inputs in channels_last (model.to(memory_format=torch.channels_last)), so that convolutions read and write one layout.',
    evidence: 'kernel_summary',
    evidence_filter: 'kind = ''computation''',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM analyzed_segments AS segment
LEFT JOIN kernels
  ON kernels.run_id = segment.run_id AND kernels.rank = segment.rank AND kernels.event_id = segment.kernel_id
LEFT JOIN events AS op ON op.run_id = kernels.run_id AND op.rank = kernels.rank AND op.event_id = kernels.op_id
