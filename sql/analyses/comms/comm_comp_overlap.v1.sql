-- /// tw
-- kind     = "analysis"
-- name     = "comm_comp_overlap"
-- version  = 1
-- summary  = "Share of each device's communication time that is overlapped with computation."
-- requires = ["device_timeline@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "device"]
-- per      = "window"
-- order    = ["run_id", "rank", "device"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank." }
-- device     = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- comm_ns    = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Time with communication running, on any stream." }
-- overlap_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "higher", doc = "Part of comm_ns overlapped with computation." }
-- exposed_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Exposed communication: comm_ns minus overlap_ns." }
-- overlap    = { type = "DOUBLE", unit = "ratio", aggregate = "overlap_ns/comm_ns", better = "higher", null = true, doc = "overlap_ns / comm_ns; null if there is no communication." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  device,
  coalesce(sum(segment_ns) FILTER (communication > 0), 0)::BIGINT AS comm_ns,
  coalesce(sum(segment_ns) FILTER (communication > 0 AND computation > 0), 0)::BIGINT AS overlap_ns,
  comm_ns - overlap_ns AS exposed_ns,
  overlap_ns / nullif(comm_ns, 0) AS overlap
FROM device_timeline
GROUP BY run_id, rank, device
