-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "exposed_copies"
-- version  = 1
-- summary  = "Detects copies and memsets that run while the GPU does nothing else."
-- requires = ["analyzed_segments@1", "memory_copies@1", "kernels@1", "events@1", "rank_devices@1"]
-- needs    = ["gpu"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: copies. Copies of pageable memory are not counted here: see `pageable_copies`." }
-- share     = { doc = "Time with a copy or memset running, and neither computation nor communication, as a share of analyzed_ns." }
-- count     = { doc = "Number of such segments." }
-- culprit   = { doc = "Direction, memory and bandwidth of the copies, and the operator enclosing their launch, with most of this time." }
-- event_id  = { doc = "The copy with the longest exposed segment." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.steps,
      segment.analyzed_ns,
      segment.start_ns,
      segment.segment_ns,
      segment.step,
      segment.kernel_id,
      segment.kind = 'memory' AND NOT regexp_matches(coalesce(kernels.name, ''), '(?i)pageable') AS matches,
      copy.direction,
      CASE copy.direction WHEN 'Memset' THEN 'Memset' WHEN 'unknown' THEN 'copies in an unknown direction' ELSE copy.direction || ' copies' END
      || CASE WHEN regexp_matches(kernels.name, '(?i)pinned') THEN ' of pinned memory' ELSE '' END
      || coalesce(' under ' || op.name, '') AS what,
      copy.bytes / copy.dur_ns * segment.segment_ns AS segment_bytes
    FROM analyzed_segments AS segment
    LEFT JOIN kernels
      ON kernels.run_id = segment.run_id AND kernels.rank = segment.rank AND kernels.event_id = segment.kernel_id
    LEFT JOIN memory_copies AS copy
      ON copy.run_id = segment.run_id AND copy.rank = segment.rank AND copy.event_id = segment.kernel_id
    LEFT JOIN events AS op
      ON op.run_id = kernels.run_id AND op.rank = kernels.rank AND op.event_id = kernels.op_id
  ),
  measured AS (
    SELECT
      run_id,
      rank,
      what,
      any_value(direction) AS direction,
      sum(segment_ns) AS sum_ns,
      -- Ordered, so that rounding does not depend on threads.
      sum(segment_bytes ORDER BY segment_bytes) / sum(segment_ns) FILTER (segment_bytes IS NOT NULL) AS bytes_per_ns
    FROM segment
    WHERE matches
    GROUP BY run_id, rank, what
  ),
  largest AS (
    SELECT run_id, rank, arg_max(direction, (sum_ns, what)) AS direction
    FROM measured
    GROUP BY run_id, rank
  )
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  coalesce(segment.matches, FALSE) AS matches,
  segment.what
  || coalesce(' at ' || format('{:.1f}', measured.bytes_per_ns) || ' GB/s', '')
  || CASE
    WHEN segment.direction IN ('HtoD', 'DtoH') AND device.host_link_bytes_per_ns > 0 AND measured.bytes_per_ns > 0
      THEN format(' ({:.0f} % of the link)', 100 * measured.bytes_per_ns / device.host_link_bytes_per_ns)
    ELSE ''
  END AS label,
  segment.segment_ns AS lost_ns,
  segment.kernel_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  {
    subject: 'copies',
    saving_limit: 'the time in which only these copies run, if all of them overlap with computation',
    observation: 'The GPU only copies for {lost}: no kernel runs meanwhile. The largest part is {culprit} ({detail}).',
    advice: CASE largest.direction
      WHEN 'HtoD' THEN 'Keep on the device what is copied again in each step (offloaded weights, tables, masks), copy it in a lower precision, and prefetch the rest on another stream while the GPU computes.'
      WHEN 'DtoH' THEN 'Copy results less often and only what the host needs, into pinned memory, on another stream while the GPU computes.'
      WHEN 'Memset' THEN 'Clear buffers only where their content is read, and let the kernel that fills a buffer write all of it.'
      ELSE 'Avoid copies between buffers: write into the target directly, keep one memory layout, and join or split tensors once.'
    END,
    evidence: 'memory_bandwidth_summary',
    evidence_filter: CASE WHEN largest.direction IS NOT NULL THEN 'direction = ''' || largest.direction || '''' END,
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM segment
LEFT JOIN measured USING (run_id, rank, what)
LEFT JOIN largest USING (run_id, rank)
JOIN rank_devices AS device USING (run_id, rank)
