-- /// tw
-- kind     = "view"
-- name     = "training_threads"
-- version  = 1
-- summary  = "The thread of each rank that runs its steps; without steps the one whose outermost slices last longest in total."
-- requires = ["steps@1", "events@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id = { type = "VARCHAR", doc = "The run." }
-- rank   = { type = "INTEGER", doc = "The rank; ranks without host slices have no thread." }
-- pid    = { type = "VARCHAR", null = true, doc = "Its process." }
-- tid    = { type = "VARCHAR", null = true, doc = "The thread." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  arg_max(pid, (is_of_step, sum_ns, tid, pid)) AS pid,
  arg_max(tid, (is_of_step, sum_ns, tid, pid)) AS tid
FROM (
  SELECT
    slice.run_id,
    slice.rank,
    slice.pid,
    slice.tid,
    bool_or(steps.event_id IS NOT NULL) AS is_of_step,
    coalesce(sum(slice.dur_ns) FILTER (slice.depth = 1), 0)::BIGINT AS sum_ns
  FROM events AS slice
  LEFT JOIN steps USING (run_id, rank, event_id)
  WHERE slice.pre IS NOT NULL
  GROUP BY slice.run_id, slice.rank, slice.pid, slice.tid
) AS candidate
GROUP BY run_id, rank
