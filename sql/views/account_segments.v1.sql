-- /// tw
-- kind     = "view"
-- scope    = "run"
-- name     = "account_segments"
-- version  = 1
-- summary  = "Segments of `device_segments` with exposed communication split into waiting for other ranks, transfer, and unassigned."
-- requires = ["rank_segments@1", "collective_arrivals@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank; ranks without GPU activity have no segments. Devices are combined." }
-- start_ns   = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the segment." }
-- segment_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the segment; always positive. Segments are contiguous." }
-- step       = { type = "BIGINT", unit = "id", null = true, doc = "The step whose period contains the segment; null before the first period and after the last." }
-- kind       = { type = "VARCHAR", doc = "computation, communication, memory, other or idle." }
-- exposure   = { type = "VARCHAR", null = true, doc = "wait: the wait of the collective, until the last rank arrived, as in `collective_arrivals`: wait_ns, for a send or receive pair_wait_ns, otherwise possible_wait_ns. With missing ranks it is a lower bound. transfer: the remainder of a collective of which all ranks are in the run. unassigned: the remainder if a rank is missing, which may be transfer or waiting for that rank; or the collective is not matched with another rank. Null unless the kind is communication." }
-- is_certain = { type = "BOOLEAN", null = true, doc = "False if a rank can leave the collective before the last one arrives (broadcast, gather, …), so that the wait is only possible; null unless the exposure is wait." }
-- waits_for  = { type = "INTEGER", null = true, doc = "The rank that arrived last; null unless the exposure is wait." }
-- kernel_id  = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that the segment is attributed to; null if idle." }
-- cause      = { type = "VARCHAR", null = true, doc = "Idle cause; null if busy." }
-- gap_ns     = { type = "BIGINT", unit = "ns", null = true, doc = "Duration of the entire gap that contains the segment; null if busy or outside." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  matched AS (
    SELECT
      run_id,
      rank,
      event_id,
      start_ns + coalesce(wait_ns, pair_wait_ns, possible_wait_ns, 0) AS wait_end_ns,
      possible_wait_ns IS NULL AS is_certain,
      state = 'complete' AS is_complete,
      last_rank
    FROM collective_arrivals
    WHERE instance_id IS NOT NULL AND on_gpu
  ),
  part AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.start_ns,
      segment.segment_ns,
      segment.step,
      segment.kind,
      segment.kernel_id,
      segment.cause,
      segment.gap_ns,
      coalesce(matched.is_complete, FALSE) AS is_complete,
      matched.is_certain,
      matched.last_rank,
      least(greatest(coalesce(matched.wait_end_ns, segment.start_ns) - segment.start_ns, 0), segment.segment_ns) AS wait_ns,
      -- A segment is all wait, no wait, or a wait and the remainder.
      unnest(CASE wait_ns WHEN 0 THEN [FALSE] WHEN segment.segment_ns THEN [TRUE] ELSE [TRUE, FALSE] END) AS is_wait
    FROM rank_segments AS segment
    LEFT JOIN matched
      ON matched.run_id = segment.run_id
      AND matched.rank = segment.rank
      AND matched.event_id = segment.kernel_id
      AND segment.kind = 'communication'
  )
SELECT
  run_id,
  rank,
  CASE WHEN is_wait THEN start_ns ELSE start_ns + wait_ns END AS start_ns,
  CASE WHEN is_wait THEN wait_ns ELSE segment_ns - wait_ns END AS segment_ns,
  step,
  kind,
  CASE
    WHEN kind <> 'communication' THEN NULL
    WHEN is_wait THEN 'wait'
    WHEN is_complete THEN 'transfer'
    ELSE 'unassigned'
  END AS exposure,
  CASE WHEN is_wait THEN is_certain END AS is_certain,
  CASE WHEN is_wait THEN last_rank END AS waits_for,
  kernel_id,
  cause,
  gap_ns
FROM part
