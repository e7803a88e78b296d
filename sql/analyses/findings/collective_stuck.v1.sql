-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- scope    = "run"
-- name     = "collective_stuck"
-- version  = 1
-- summary  = "Names the collective at which a process group is stuck, and the rank that did not arrive."
-- requires = ["stuck_groups@1", "flight_calls@1"]
-- needs    = ["flight_records"]
-- excluded_by = []
-- limited_by = ["ranks_missing"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0 }
-- critical_share = { default = 0 }
--
-- [columns]
-- rank        = { doc = "The first rank that did not arrive; if there is none, the first that waits." }
-- subject     = { doc = "The process group by name. Groups that are not stuck have no row." }
-- share       = { doc = "Share of the ranks of the group with a dump that did not arrive." }
-- count       = { doc = "Number of ranks that did not arrive; 1 if all did." }
-- steps       = { doc = "Always 0: a dump has no steps." }
-- analyzed_ns = { doc = "Time from the first to the last record of the group, at least 1." }
-- saving_ns   = { doc = "Always null: the job does not continue." }
-- event_id    = { doc = "Always null: records of a dump are not events." }
-- from_ns     = { doc = "Always null: the rank may have no trace of that time." }
-- to_ns       = { doc = "Always null." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  recorded AS (
    SELECT
      run_id,
      process_group,
      count(DISTINCT rank) AS ranks,
      max(created_ns) - min(created_ns) AS recorded_ns
    FROM flight_calls
    GROUP BY run_id, process_group
  )
SELECT
  stuck.run_id,
  coalesce(stuck.missing_ranks[1], stuck.waiting_ranks[1], 0) AS rank,
  'group ' || stuck.process_group AS subject,
  TRUE AS is_finding,
  TRUE AS is_representative,
  len(stuck.missing_ranks) / greatest(recorded.ranks, 1) AS share,
  greatest(len(stuck.missing_ranks), 1) AS count,
  0::BIGINT AS steps,
  greatest(coalesce(recorded.recorded_ns, 0), 1) AS analyzed_ns,
  NULL::BIGINT AS saving_ns,
  'a stuck job does not continue' AS saving_limit,
  stuck.explanation AS observation,
  CASE stuck.cause
    WHEN 'missing' THEN 'Find out what this rank does instead: its stack (py-spy dump), its log, or a branch that skips the collective.'
    WHEN 'type' THEN 'Make all ranks of the group call the same collectives in the same order.'
    ELSE 'Check the network, and whether a rank ended or its GPU failed; set NCCL_DEBUG=INFO.'
  END AS advice,
  'stuck_collective' AS evidence,
  'process_group = ''' || replace(stuck.process_group, '''', '''''') || '''' AS evidence_filter,
  NULL::BIGINT AS event_id,
  NULL::BIGINT AS from_ns,
  NULL::BIGINT AS to_ns,
  stuck.last_call AS culprit
FROM stuck_groups AS stuck
JOIN recorded USING (run_id, process_group)
