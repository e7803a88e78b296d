-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "pageable_copies"
-- version  = 1
-- summary  = "Detects exposed copies from or to pageable memory."
-- requires = ["analyzed_segments@1", "kernels@1", "events@1"]
-- needs    = ["gpu"]
--
-- [params]
-- warning_share  = { default = 0.02 }
-- critical_share = { default = 0.1 }
--
-- [columns]
-- subject   = { doc = "Always: copies of pageable memory. Ranks whose copies do not record the memory type have no row." }
-- share     = { doc = "Time with such a copy running, and neither computation nor communication, as a share of analyzed_ns." }
-- count     = { doc = "Number of such segments." }
-- culprit   = { doc = "The copy, and the operator enclosing its launch, with most of this time." }
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
      segment.start_ns,
      segment.segment_ns,
      segment.kernel_id,
      segment.step,
      segment.steps,
      segment.analyzed_ns,
      copy.name AS copy_name,
      copy.op_id,
      regexp_matches(copy.name, '(?i)pageable') AS matches
    FROM analyzed_segments AS segment
    LEFT JOIN kernels AS copy
      ON copy.run_id = segment.run_id AND copy.rank = segment.rank AND copy.event_id = segment.kernel_id
  ),
  per_rank AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      count(*) FILTER (matches) AS count,
      coalesce(sum(segment_ns) FILTER (matches), 0)::BIGINT AS saving_ns,
      saving_ns / any_value(analyzed_ns) AS share,
      arg_max(kernel_id, (segment_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (matches) AS from_ns,
      arg_max(step, (segment_ns, -start_ns)) FILTER (matches) AS step,
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  ),
  labeled AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.segment_ns,
      segment.matches,
      segment.copy_name || coalesce(' under ' || op.name, '') AS label
    FROM segment
    LEFT JOIN events AS op ON op.run_id = segment.run_id AND op.rank = segment.rank AND op.event_id = segment.op_id
    WHERE segment.matches
  ),
  part AS (
    SELECT run_id, rank, label, sum(segment_ns)::BIGINT AS part_ns
    FROM labeled
    WHERE matches
    GROUP BY run_id, rank, label
  ),
  largest AS (
    SELECT run_id, rank, arg_max(label, (part_ns, label)) AS culprit, max(part_ns) AS part_ns
    FROM part
    GROUP BY run_id, rank
  ),
  recorded AS (
    SELECT DISTINCT run_id, rank
    FROM kernels
    WHERE activity = 'memcpy' AND regexp_matches(name, '(?i)pageable|pinned')
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'copies of pageable memory' AS subject,
  share >= $warning_share AS is_finding,
  steps > 0 AS is_representative,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'the time in which only these copies run; copies of pinned memory are faster and can overlap with computation' AS saving_limit,
  'high' AS confidence,
  'Copies from or to pageable memory, which are staged through a driver buffer and block the host, are exposed for {lost}. The largest part is ' || coalesce(largest.culprit, 'unknown') || ' ({detail}).' AS observation,
  'Pin the memory (DataLoader with pin_memory=True, tensor.pin_memory()) and copy with non_blocking=True.' AS advice,
  'memory_bandwidth_summary' AS evidence,
  'direction IN (''HtoD'', ''DtoH'')' AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  largest.culprit,
  largest.part_ns // greatest(steps, 1) AS detail_ns
FROM per_rank
LEFT JOIN largest ON largest.run_id = per_rank.run_id AND largest.rank = per_rank.rank
SEMI JOIN recorded ON recorded.run_id = per_rank.run_id AND recorded.rank = per_rank.rank
