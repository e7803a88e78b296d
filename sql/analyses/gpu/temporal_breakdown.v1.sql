-- /// tw
-- kind     = "analysis"
-- name     = "temporal_breakdown"
-- version  = 1
-- summary  = "Breakdown of each device's GPU window: computation, exposed communication, exposed memory operations, other and idle."
-- requires = ["device_timeline@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device"]
-- per      = "window"
-- order    = ["run_id", "rank", "device"]
--
-- [columns]
-- run_id            = { type = "VARCHAR", doc = "The run." }
-- rank              = { type = "INTEGER", doc = "The rank." }
-- device            = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- window_ns         = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "GPU window: first start to last end of the device's GPU activities; busy_ns + idle_ns." }
-- busy_ns           = { type = "BIGINT", unit = "ns", aggregate = "sum", doc = "Time with at least one GPU activity on any stream: the sum of the next four columns." }
-- compute_ns        = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time with computation running." }
-- exposed_comm_ns   = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time with communication and no computation running." }
-- exposed_memory_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time with a memcpy or memset, and neither computation nor communication, running." }
-- other_ns          = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time with only activities of other kinds running." }
-- idle_ns           = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time within the GPU window with nothing running." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  split AS (
    SELECT
      run_id,
      rank,
      device,
      coalesce(sum(segment_ns) FILTER (kind = 'computation'), 0)::BIGINT AS compute_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'communication'), 0)::BIGINT AS exposed_comm_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'memory'), 0)::BIGINT AS exposed_memory_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'other'), 0)::BIGINT AS other_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'idle'), 0)::BIGINT AS idle_ns
    FROM device_timeline
    GROUP BY run_id, rank, device
  )
SELECT
  run_id,
  rank,
  device,
  compute_ns + exposed_comm_ns + exposed_memory_ns + other_ns + idle_ns AS window_ns,
  compute_ns + exposed_comm_ns + exposed_memory_ns + other_ns AS busy_ns,
  compute_ns,
  exposed_comm_ns,
  exposed_memory_ns,
  other_ns,
  idle_ns
FROM split
