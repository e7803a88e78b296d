-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- scope    = "run"
-- name     = "pipeline_wait"
-- version  = 1
-- summary  = "Detects ranks that wait in receives until another rank sends, as between the stages of a pipeline."
-- requires = ["account_segments@1", "analyzed_intervals@1", "collective_arrivals@1", "host_occurrences@1"]
-- needs    = ["collectives"]
-- excluded_by = ["lost_records", "mixed_attempts", "no_work"]
-- limited_by = ["lost_events", "several_processes", "late_start"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.4 }
--
-- [columns]
-- subject   = { doc = "Always: receives." }
-- share     = { doc = "Time in receives until the other rank sends, as a share of analyzed_ns. On the GPU: exposed waits of receives that are matched with their send. On ranks without GPU activity: time of the training thread in receives of Gloo or MPI." }
-- count     = { doc = "Number of such waits." }
-- culprit   = { doc = "The rank, or on ranks without GPU activity the receive, that most of this time is spent waiting for." }
-- event_id  = { doc = "The longest such receive." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  wait AS (
    SELECT
      account.run_id,
      account.rank,
      analyzed.steps,
      analyzed.analyzed_ns,
      account.exposure = 'wait' AND arrival.direction = 'receive' AS matches,
      'rank ' || arrival.peer AS label,
      account.segment_ns AS lost_ns,
      account.kernel_id AS event_id,
      account.step,
      account.start_ns AS from_ns,
      account.start_ns + account.segment_ns AS to_ns,
      'collective_waits' AS evidence,
      'rank = ' || account.rank || ' AND direction = ''receive''' AS evidence_filter
    FROM account_segments AS account
    JOIN analyzed_intervals AS analyzed USING (run_id, rank)
    LEFT JOIN collective_arrivals AS arrival
      ON arrival.run_id = account.run_id AND arrival.rank = account.rank AND arrival.event_id = account.kernel_id
    WHERE account.start_ns >= analyzed.start_ns AND account.start_ns < analyzed.end_ns
    UNION ALL
    SELECT
      run_id,
      rank,
      steps,
      analyzed_ns,
      regexp_matches(label, '^(gloo|mpi):i?recv'),
      label,
      self_ns,
      slice_id,
      step,
      start_ns,
      end_ns,
      'host_account',
      NULL
    FROM host_occurrences
  )
SELECT
  run_id,
  rank,
  steps,
  analyzed_ns,
  coalesce(matches, FALSE) AS matches,
  label,
  lost_ns,
  event_id,
  step,
  from_ns,
  to_ns,
  {
    subject: 'receives',
    saving_limit: 'all of these waits; a pipeline of p stages and m microbatches has a bubble of (p - 1) / (m + p - 1) even if its stages take equally long',
    observation: 'This rank waits {lost} in receives until another rank sends. The largest part is for {culprit} ({detail}); the longest wait takes {worst}{where}.',
    advice: 'In a pipeline, balance the stages (tw show pipeline_bubbles, step_summary by rank), use more microbatches or an interleaved schedule, and send as soon as a result is there.',
    evidence: evidence,
    evidence_filter: evidence_filter,
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM wait
