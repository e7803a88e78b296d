-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "host_data_loading"
-- version  = 1
-- summary  = "Detects CPU-only runs whose training thread loads data, or waits for it."
-- requires = ["host_occurrences@1"]
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
WITH
  occurrence AS (
    SELECT run_id, rank, slice_id, label, is_loading AS matches, step, start_ns, end_ns, self_ns, steps, analyzed_ns
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
      count(*) FILTER (matches) AS count,
      coalesce(sum(self_ns) FILTER (matches), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(occurrence.analyzed_ns) AS share,
      arg_max(slice_id, (self_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(step, (self_ns, -start_ns)) FILTER (matches) AS step,
      arg_max(start_ns, (self_ns, -start_ns)) FILTER (matches) AS from_ns,
      arg_max(end_ns, (self_ns, -start_ns)) FILTER (matches) AS to_ns
    FROM occurrence
    LEFT JOIN largest ON largest.run_id = occurrence.run_id AND largest.rank = occurrence.rank
    GROUP BY occurrence.run_id, occurrence.rank
  )
SELECT
  run_id,
  rank,
  'data loader' AS subject,
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'all time in these slices, with data that is ready when the step needs it' AS saving_limit,
  'high' AS confidence,
  'The training thread loads data, or waits for it, for {lost}. The largest part is ' || coalesce(culprit, 'unknown') || ' ({detail}); the longest takes {worst}{where}.' AS observation,
  'Load data in worker processes (num_workers above 0, persistent_workers=True), prefetch more batches, or do less work per sample.' AS advice,
  'host_account' AS evidence,
  'category = ''data_loading''' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  culprit,
  part_ns // greatest(steps, 1) AS detail_ns
FROM per_rank
