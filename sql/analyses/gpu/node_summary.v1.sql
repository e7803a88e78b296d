-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "node_summary"
-- version  = 1
-- summary  = "GPU time of each host: the columns of `temporal_breakdown` summed over its ranks, and its slowest rank."
-- requires = ["device_timeline@1", "ranks@1"]
-- needs    = ["gpu", "host"]
-- grain    = ["run_id", "host"]
-- order    = ["run_id", "host"]
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- host               = { type = "VARCHAR", doc = "Host name." }
-- ranks              = { type = "BIGINT", unit = "count", doc = "Number of its ranks with GPU activity." }
-- devices            = { type = "BIGINT", unit = "count", doc = "Number of devices of these ranks." }
-- window_ns          = { type = "BIGINT", unit = "ns", better = "lower", doc = "Sum of the GPU windows; busy_ns + idle_ns." }
-- busy_ns            = { type = "BIGINT", unit = "ns", doc = "Time with at least one GPU activity: the sum of the next four columns." }
-- compute_ns         = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time with computation running." }
-- exposed_comm_ns    = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time with communication and no computation running." }
-- exposed_memory_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time with a memcpy or memset, and neither computation nor communication, running." }
-- other_ns           = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time with only activities of other kinds running." }
-- idle_ns            = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time within the GPU windows with nothing running." }
-- slowest_rank       = { type = "INTEGER", doc = "The rank of the host with the most computation; the lowest on ties. It computes longest, which need not make others wait: see `stragglers`." }
-- slowest_compute_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "Its compute_ns." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  per_rank AS (
    SELECT
      run_id,
      rank,
      count(DISTINCT device) AS devices,
      coalesce(sum(segment_ns) FILTER (kind = 'computation'), 0)::BIGINT AS compute_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'communication'), 0)::BIGINT AS exposed_comm_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'memory'), 0)::BIGINT AS exposed_memory_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'other'), 0)::BIGINT AS other_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'idle'), 0)::BIGINT AS idle_ns
    FROM device_timeline
    GROUP BY run_id, rank
  )
SELECT
  ranks.run_id,
  ranks.host,
  count(*) AS ranks,
  sum(per_rank.devices)::BIGINT AS devices,
  sum(compute_ns + exposed_comm_ns + exposed_memory_ns + other_ns + idle_ns)::BIGINT AS window_ns,
  sum(compute_ns + exposed_comm_ns + exposed_memory_ns + other_ns)::BIGINT AS busy_ns,
  sum(compute_ns)::BIGINT AS compute_ns,
  sum(exposed_comm_ns)::BIGINT AS exposed_comm_ns,
  sum(exposed_memory_ns)::BIGINT AS exposed_memory_ns,
  sum(other_ns)::BIGINT AS other_ns,
  sum(idle_ns)::BIGINT AS idle_ns,
  arg_max(per_rank.rank, (compute_ns, -per_rank.rank)) AS slowest_rank,
  max(compute_ns) AS slowest_compute_ns
FROM per_rank
JOIN ranks USING (run_id, rank)
GROUP BY ranks.run_id, ranks.host
