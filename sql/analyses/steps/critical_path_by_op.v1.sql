-- /// tw
-- kind     = "analysis"
-- name     = "critical_path_by_op"
-- version  = 1
-- summary  = "Critical path of each scope by operator, host call and kernel."
-- requires = ["critical_path@1", "events@1", "kernels@1", "runtime@1"]
-- needs    = ["critical_path"]
-- grain    = ["run_id", "rank", "scope", "category", "op", "name"]
-- order    = ["run_id", "rank", "scope", "-path_ns", "category", "op", "name"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- scope    = { type = "VARCHAR", doc = "The scope, as in critical_path_breakdown." }
-- category = { type = "VARCHAR", doc = "The category, as in critical_path_breakdown." }
-- op       = { type = "VARCHAR", null = true, doc = "The innermost operator: the slice itself, or the one enclosing the host call or the launch of the GPU activity; null outside operators." }
-- name     = { type = "VARCHAR", null = true, doc = "The operator, host call or GPU activity that the time is attributed to; for launch and kernel_gap, the activity that starts; null between them." }
-- segments = { type = "BIGINT", unit = "count", doc = "Number of segments of the path." }
-- path_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "Their total time; the rows of a scope sum to its duration." }
-- share    = { type = "DOUBLE", unit = "ratio", null = true, doc = "path_ns as a share of the scope's duration; null if that is 0." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  owned AS (
    SELECT
      part.run_id,
      part.rank,
      part.scope,
      part.category,
      op.name AS op,
      own.name,
      part.segment_ns
    FROM critical_path AS part
    LEFT JOIN events AS own USING (run_id, rank, event_id)
    LEFT JOIN kernels USING (run_id, rank, event_id)
    LEFT JOIN runtime USING (run_id, rank, event_id)
    LEFT JOIN events AS op
      ON op.run_id = part.run_id AND op.rank = part.rank
      AND op.event_id = coalesce(
        kernels.op_id, runtime.op_id, CASE WHEN own.category = 'cpu_op' THEN own.event_id END
      )
  ),
  split AS (
    SELECT run_id, rank, scope, category, op, name, count(*) AS segments, sum(segment_ns)::BIGINT AS path_ns
    FROM owned
    GROUP BY run_id, rank, scope, category, op, name
  )
SELECT
  run_id,
  rank,
  scope,
  category,
  op,
  name,
  segments,
  path_ns,
  path_ns / nullif((sum(path_ns) OVER (PARTITION BY run_id, rank, scope))::BIGINT, 0) AS share
FROM split
