-- /// tw
-- kind     = "analysis"
-- name     = "idle_breakdown"
-- version  = 1
-- summary  = "Idle time of each device by cause: the host, the launching call, usual latency, queued work, or inside a graph."
-- requires = ["device_gaps@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device", "cause"]
-- per      = "window"
-- order    = ["run_id", "rank", "device", "-idle_ns"]
--
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- device  = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- cause   = { type = "VARCHAR", doc = "host: until pending work was launched; call: until the launching call returned; latency: for as long as launches usually take; queued: the rest, in which work waited for other work, the device, or something that was not recorded; graph: between two activities of one graph launch; unknown: the launch of the next activity is missing from the trace (see `device_gaps`). `stream_idle` has HTA's causes." }
-- idle_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Total time of such parts of gaps; the causes sum to idle_ns of temporal_breakdown." }
-- count   = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Number of gaps with such a part." }
-- share   = { type = "DOUBLE", unit = "ratio", aggregate = "sum", doc = "idle_ns as a share of the device's idle time." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  part AS (
    SELECT
      run_id,
      rank,
      device,
      unnest(['host', 'call', 'latency', 'queued', cause]) AS cause,
      unnest([host_ns, call_ns, latency_ns, queued_ns, CASE WHEN cause IN ('graph', 'unknown') THEN idle_ns ELSE 0 END]) AS idle_ns
    FROM device_gaps
  ),
  cause_sum AS (
    SELECT run_id, rank, device, cause, sum(idle_ns)::BIGINT AS idle_ns, count(*) AS count
    FROM part
    WHERE idle_ns > 0
    GROUP BY run_id, rank, device, cause
  )
SELECT
  run_id,
  rank,
  device,
  cause,
  idle_ns,
  count,
  idle_ns / (sum(idle_ns) OVER (PARTITION BY run_id, rank, device))::BIGINT AS share
FROM cause_sum
