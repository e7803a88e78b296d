-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- scope    = "run"
-- name     = "exposed_comm"
-- version  = 1
-- summary  = "Detects a large share of exposed communication that is not waiting for another rank."
-- requires = ["account_segments@1", "analyzed_intervals@1", "collectives@1", "data_quality@1"]
-- needs    = ["gpu", "collectives"]
-- excluded_by = ["lost_records", "mixed_attempts", "no_work"]
-- limited_by = ["lost_events", "several_processes", "ranks_missing", "late_start"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.08 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "transfer: exposed communication after the last rank arrived. unmatched: exposed communication that is not matched with another rank, so that waiting and transfer cannot be separated. Waiting for a matched rank is not counted here: see `slow_rank`." }
-- severity  = { doc = "critical, warning, info (kernels inside CUDA graphs were not recorded, so part of it may be overlapped) or none." }
-- share     = { doc = "Such communication as a share of analyzed_ns." }
-- count     = { doc = "Number of segments of such communication." }
-- culprit   = { doc = "The collective and process group, or else the kernel, with most of this time." }
-- event_id  = { doc = "The communication activity with the longest such segment." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  exposed AS (
    SELECT
      account.run_id,
      account.rank,
      account.start_ns,
      account.segment_ns,
      account.kernel_id,
      account.step,
      account.exposure,
      span.steps,
      span.analyzed_ns,
      unnest(['transfer', 'unmatched']) AS subject
    FROM account_segments AS account
    JOIN analyzed_intervals AS span USING (run_id, rank)
    -- A recording of communication alone cannot show what it overlaps with.
    SEMI JOIN (SELECT run_id, rank FROM account_segments WHERE kind = 'computation') AS computing USING (run_id, rank)
    WHERE account.start_ns >= span.start_ns AND account.start_ns < span.end_ns
  ),
  segment AS (
    SELECT
      run_id,
      rank,
      subject,
      start_ns,
      segment_ns,
      kernel_id,
      step,
      steps,
      analyzed_ns,
      coalesce(exposure = CASE subject WHEN 'transfer' THEN 'transfer' ELSE 'unassigned' END, FALSE) AS matches
    FROM exposed
  ),
  missing AS (
    SELECT run_id, rank, text
    FROM rank_limits
    WHERE reason = 'ranks_missing'
  ),
  unseen AS (
    -- Ranks of which CUDA graphs were recorded without the kernels inside, which may be computation.
    SELECT run_id, rank, rows > 0 AS in_graphs
    FROM data_quality
    WHERE rule = 'graph_level_trace'
  )
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  segment.matches,
  CASE collectives.collective WHEN 'other' THEN coalesce(collectives.name, 'unknown') ELSE collectives.collective END
  || coalesce(' in process group ' || collectives.process_group, '') AS label,
  segment.segment_ns AS lost_ns,
  segment.kernel_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  CASE
    WHEN unseen.in_graphs THEN 2
    WHEN segment.subject = 'transfer' THEN 0
    ELSE 1
  END AS doubt,
  {
    subject: segment.subject,
    saving_limit: CASE
      WHEN unseen.in_graphs THEN 'all exposed communication that is not a known wait, even where a CUDA graph runs, whose kernels are unknown'
      WHEN segment.subject = 'transfer' THEN 'all exposed transfer; waiting for other ranks is not included'
      ELSE
        'all exposed communication that is not matched; part of it may be waiting for other ranks, which a faster network does not reduce'
    END,
    observation: 'Communication is not overlapped with computation for {lost}'
    || CASE
      WHEN segment.subject = 'transfer' THEN ', even after the last rank arrived.'
      WHEN missing.text IS NULL THEN '; whether ranks wait for one another is unknown.'
      ELSE '; a rank that was not recorded may be late.'
    END
    || ' The largest part is {culprit} ({detail}).'
    || CASE
      WHEN unseen.in_graphs THEN
        ' The kernels inside CUDA graphs were not recorded: where a graph runs, this may be overlapped.'
      ELSE ''
    END,
    advice: CASE
      WHEN unseen.in_graphs THEN
        'Record the kernels inside CUDA graphs: nsys profile --cuda-graph-trace=node.'
      WHEN segment.subject = 'transfer' THEN
        'Overlap communication with computation (larger or earlier buckets, prefetching of shards), send less (gradient accumulation, compression, lower precision), or keep it on the fast links.'
      WHEN missing.text IS NOT NULL THEN
        'Record and ingest all ranks of the process groups (' || missing.text || '), so that waiting and transfer can be separated.'
      ELSE
        'Waiting and transfer can be separated where the traces of all ranks are ingested and their collectives match. Otherwise overlap communication with computation, send less, or keep it on the fast links.'
    END,
    evidence: 'window_account',
    -- With one rank selected, nothing could be matched: the filter names the rank.
    evidence_filter: 'rank = '
    || segment.rank
    || CASE segment.subject
      WHEN 'transfer' THEN ' AND category = ''exposed_transfer'''
      ELSE ' AND category = ''exposed_unassigned'''
    END,
    only_largest: FALSE,
    is_context: unseen.in_graphs IS NOT NULL
  } AS words
FROM segment
LEFT JOIN unseen USING (run_id, rank)
LEFT JOIN missing USING (run_id, rank)
LEFT JOIN collectives
  ON segment.matches
  AND collectives.run_id = segment.run_id
  AND collectives.rank = segment.rank
  AND collectives.event_id = segment.kernel_id
