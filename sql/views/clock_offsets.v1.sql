-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "clock_offsets"
-- version  = 1
-- summary  = "Clock offset of each rank relative to a reference rank, estimated from synchronizing collectives and from sends and receives on the GPU."
-- requires = ["collective_matches@1", "ranks@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- reference_rank = { type = "INTEGER", doc = "The lowest rank reachable through links, directly or via other ranks. Ranks are linked by collectives that both share, and by matched sends and receives. Offsets with different references cannot be compared." }
-- offset_ns      = { type = "BIGINT", unit = "ns", signed = true, doc = "Clock of this rank minus clock of the reference: the median difference of end times (lower of the two middle values), summed along the chain of ranks. Subtract it from this rank's timestamps to get reference time. A send that returns before its receive (an eager copy) distorts a link between pipeline stages. Ranks without any link that ran on the same host have the same clock: 0." }
-- uncertainty_ns = { type = "BIGINT", unit = "ns", null = true, doc = "Median absolute deviation of these differences (upper of the two middle values), summed along the chain; null if a link is estimated from a single collective or from the host name. Clock drift shows here." }
-- collectives    = { type = "BIGINT", unit = "count", null = true, doc = "Number of collectives behind the estimate: the minimum over the links of the chain; null for the reference, 0 for the host name." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  ended AS (
    -- Assumed groups count only in runs without a known one. Hosts see the end of a collective too late.
    SELECT
      run_id,
      first_rank,
      rank,
      direction IS NOT NULL AS is_pair,
      end_ns - first_end_ns AS ahead_ns,
      group_known OR NOT bool_or(group_known) OVER (PARTITION BY run_id) AS counts
    FROM collective_matches
    WHERE on_gpu AND (waits_for_all OR direction IS NOT NULL) AND rank > first_rank
  ),
  pair AS (
    SELECT run_id, first_rank, rank, is_pair, quantile_disc(ahead_ns, 0.5) AS offset_ns
    FROM ended
    WHERE counts
    GROUP BY run_id, first_rank, rank, is_pair
  ),
  spread AS (
    SELECT
      ended.run_id,
      ended.first_rank,
      ended.rank,
      ended.is_pair,
      any_value(pair.offset_ns) AS offset_ns,
      -- Upper of the two middle values: with two collectives the lower one is always 0.
      CASE WHEN count(*) > 1 THEN -quantile_disc(-abs(ended.ahead_ns - pair.offset_ns), 0.5) END AS uncertainty_ns,
      count(*) AS collectives
    FROM ended
    JOIN pair USING (run_id, rank, first_rank, is_pair)
    WHERE ended.counts
    GROUP BY ended.run_id, ended.first_rank, ended.rank, ended.is_pair
  ),
  linked AS (
    SELECT run_id, first_rank AS rank FROM spread
    UNION
    SELECT run_id, rank FROM spread
  ),
  same_host AS (
    SELECT run_id, rank, min(rank) OVER (PARTITION BY run_id, host) AS first_rank
    FROM ranks
    ANTI JOIN linked USING (run_id, rank)
    WHERE host IS NOT NULL
  ),
  estimate AS (
    SELECT run_id, first_rank, rank, is_pair, offset_ns, uncertainty_ns, collectives
    FROM spread
    UNION ALL
    SELECT run_id, first_rank, rank, TRUE AS is_pair, 0 AS offset_ns, NULL AS uncertainty_ns, 0 AS collectives
    FROM same_host
    WHERE rank > first_rank
  ),
  link AS (
    SELECT run_id, first_rank AS from_rank, rank AS to_rank, is_pair, offset_ns, uncertainty_ns, collectives
    FROM estimate
    UNION ALL
    SELECT run_id, rank AS from_rank, first_rank AS to_rank, is_pair, -offset_ns, uncertainty_ns, collectives
    FROM estimate
  ),
  known AS (
    -- Each round, a rank takes the lowest reference that it or a neighbor knows, until none finds a lower one.
    SELECT
      run_id,
      rank,
      0 AS round,
      rank AS reference_rank,
      0::BIGINT AS offset_ns,
      0::BIGINT AS uncertainty_ns,
      NULL::BIGINT AS collectives,
      TRUE AS moving
    FROM ranks
    UNION ALL
    SELECT
      run_id,
      rank,
      round + 1 AS round,
      best.reference_rank,
      best.offset_ns,
      best.uncertainty_ns,
      best.collectives,
      bool_or(best.is_new) OVER (PARTITION BY run_id) AS moving
    FROM (
      SELECT
        run_id,
        rank,
        round,
        arg_min(
          {reference_rank: reference_rank, offset_ns: offset_ns, uncertainty_ns: uncertainty_ns,
           collectives: collectives, is_new: is_new},
          (reference_rank, is_new, is_pair, -collectives, via)
        ) AS best
      FROM (
        SELECT
          run_id, rank, round, reference_rank, offset_ns, uncertainty_ns, collectives,
          FALSE AS is_new, FALSE AS is_pair, rank AS via
        FROM known
        WHERE moving
        UNION ALL
        SELECT
          known.run_id,
          link.to_rank AS rank,
          known.round,
          known.reference_rank,
          known.offset_ns + link.offset_ns AS offset_ns,
          known.uncertainty_ns + link.uncertainty_ns AS uncertainty_ns,
          least(known.collectives, link.collectives) AS collectives,
          TRUE AS is_new,
          link.is_pair,
          known.rank AS via
        FROM known
        JOIN link ON link.run_id = known.run_id AND link.from_rank = known.rank
        WHERE known.moving
      ) AS offer
      GROUP BY run_id, rank, round
    ) AS selected
  )
SELECT
  run_id,
  rank,
  reference_rank,
  offset_ns,
  uncertainty_ns,
  collectives
FROM known
WHERE NOT moving
