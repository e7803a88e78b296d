-- /// tw
-- kind     = "analysis"
-- name     = "comm_by_group"
-- version  = 1
-- summary  = "Communication time of each process group per device, and how much of it is overlapped with computation."
-- requires = ["device_timeline@1", "kernels@1"]
-- needs    = ["gpu", "collectives"]
-- grain    = ["run_id", "rank", "device", "process_group"]
-- order    = ["run_id", "rank", "device", "-comm_ns", "process_group"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- device        = { type = "BIGINT", unit = "id", signed = true, doc = "The device; -1 if unknown." }
-- process_group = { type = "VARCHAR", null = true, doc = "Process group name; null for all communication whose group is unknown. Devices without communication have no row." }
-- comm_ns       = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time with communication of the group running, on any stream. If groups communicate concurrently, their times sum to more than that of the device." }
-- overlap_ns    = { type = "BIGINT", unit = "ns", better = "higher", doc = "Part of comm_ns overlapped with computation." }
-- exposed_ns    = { type = "BIGINT", unit = "ns", better = "lower", doc = "Exposed communication: comm_ns minus overlap_ns." }
-- overlap       = { type = "DOUBLE", unit = "ratio", better = "higher", null = true, doc = "overlap_ns / comm_ns; null if comm_ns is 0." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  comm AS (
    SELECT
      run_id,
      rank,
      device,
      process_group,
      event_id,
      ts_ns AS start_ns,
      ts_ns + dur_ns AS end_ns
    FROM kernels
    WHERE kind = 'communication'
  ),
  behind AS (
    SELECT
      run_id,
      rank,
      device,
      process_group,
      start_ns,
      end_ns,
      -- Latest end of the group's earlier activities: time up to here is already counted.
      coalesce(max(end_ns) OVER earlier, start_ns) AS counted_ns
    FROM comm
    WINDOW earlier AS (
      PARTITION BY run_id, rank, device, process_group
      ORDER BY start_ns, event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  fresh AS (
    SELECT
      run_id,
      rank,
      device,
      process_group,
      greatest(start_ns, counted_ns) AS start_ns,
      greatest(end_ns, counted_ns) AS end_ns
    FROM behind
  ),
  clock AS (
    -- Each instant at which a GPU activity starts or ends, with the computation time until then.
    SELECT
      run_id,
      rank,
      device,
      start_ns AS at_ns,
      coalesce(sum(CASE WHEN computation > 0 THEN segment_ns ELSE 0 END) OVER earlier, 0)::BIGINT AS computed_ns
    FROM device_timeline
    WINDOW earlier AS (
      PARTITION BY run_id, rank, device
      ORDER BY start_ns
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  split AS (
    SELECT
      fresh.run_id,
      fresh.rank,
      fresh.device,
      fresh.process_group,
      sum(fresh.end_ns - fresh.start_ns)::BIGINT AS comm_ns,
      sum(until.computed_ns - since.computed_ns)::BIGINT AS overlap_ns
    FROM fresh
    JOIN clock AS since
      ON since.run_id = fresh.run_id AND since.rank = fresh.rank AND since.device = fresh.device
      AND since.at_ns = fresh.start_ns
    JOIN clock AS until
      ON until.run_id = fresh.run_id AND until.rank = fresh.rank AND until.device = fresh.device
      AND until.at_ns = fresh.end_ns
    GROUP BY fresh.run_id, fresh.rank, fresh.device, fresh.process_group
  )
SELECT
  run_id,
  rank,
  device,
  process_group,
  comm_ns,
  overlap_ns,
  comm_ns - overlap_ns AS exposed_ns,
  overlap_ns / nullif(comm_ns, 0) AS overlap
FROM split
