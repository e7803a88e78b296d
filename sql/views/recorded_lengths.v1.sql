-- /// tw
-- kind     = "view"
-- name     = "recorded_lengths"
-- version  = 1
-- summary  = "How much each rank recorded: steps and time, by which comparisons divide what grows with the length of a recording."
-- requires = ["ranks@1", "steps@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- window_steps   = { type = "BIGINT", unit = "count", doc = "Recorded steps in thousandths. An incomplete step counts as its share of the median complete step, from 90 % on as an entire one: often it only is at the edge of the recording. If no step is complete, each counts as an entire one. 0 without steps." }
-- window_ns      = { type = "BIGINT", unit = "ns", doc = "From the first event to the latest end of one; 0 if unknown." }
-- complete_steps = { type = "BIGINT", unit = "count", doc = "Complete steps in thousandths; window_steps if there are none." }
-- complete_ns    = { type = "BIGINT", unit = "ns", doc = "Sum of their periods; window_ns if there are none." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  counted AS (
    SELECT
      run_id,
      rank,
      sum(CASE WHEN partial AND 10 * (usual_ns - period_ns) > usual_ns THEN 1000 * period_ns // usual_ns ELSE 1000 END)::BIGINT AS steps,
      1000 * count(*) FILTER (NOT partial) AS complete,
      sum(period_ns) FILTER (NOT partial)::BIGINT AS complete_ns
    FROM (
      SELECT
        run_id,
        rank,
        partial,
        period_ns,
        quantile_disc(period_ns, 0.5) FILTER (NOT partial) OVER (PARTITION BY run_id, rank) AS usual_ns
      FROM steps
    )
    GROUP BY run_id, rank
  )
SELECT
  ranks.run_id,
  ranks.rank,
  coalesce(counted.steps, 0) AS window_steps,
  coalesce(ranks.end_ns - ranks.start_ns, 0) AS window_ns,
  CASE WHEN counted.complete > 0 THEN counted.complete ELSE window_steps END AS complete_steps,
  coalesce(counted.complete_ns, window_ns) AS complete_ns
FROM ranks
LEFT JOIN counted USING (run_id, rank)
