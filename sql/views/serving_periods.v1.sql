-- /// tw
-- kind     = "view"
-- name     = "serving_periods"
-- version  = 1
-- summary  = "GPU time of an inference server from step to step: each step's work, and what follows until the next step's."
-- requires = ["serving_steps@1", "serving_kernels@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns", "event_id"]
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run." }
-- rank             = { type = "INTEGER", doc = "The rank." }
-- event_id         = { type = "BIGINT", unit = "id", doc = "The step in `serving_steps`; steps without GPU activity have no row." }
-- phase            = { type = "VARCHAR", doc = "Its phase." }
-- step             = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step that contains its start on the host." }
-- prefill_requests = { type = "BIGINT", null = true, unit = "count", doc = "Requests whose prompt is processed." }
-- decode_requests  = { type = "BIGINT", null = true, unit = "count", doc = "Requests that generate tokens." }
-- start_ns         = { type = "BIGINT", signed = true, unit = "ts", doc = "Start of the first GPU activity of the step." }
-- end_ns           = { type = "BIGINT", signed = true, unit = "ts", doc = "Latest end of its GPU activities, or next_ns if that is earlier." }
-- next_ns          = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "start_ns of the next step; null for the last." }
-- next_phase       = { type = "VARCHAR", null = true, doc = "Phase of the next step." }
-- next_decode_ns   = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "start_ns of the next step that decodes (decode or mixed); null if there is none." }
-- decodes          = { type = "BIGINT", unit = "count", doc = "Steps that decode up to this one." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  period AS (
    SELECT run_id, rank, step_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM serving_kernels
    GROUP BY run_id, rank, step_id
  )
SELECT
  period.run_id,
  period.rank,
  serving_steps.event_id,
  serving_steps.phase,
  serving_steps.step,
  serving_steps.prefill_requests,
  serving_steps.decode_requests,
  period.start_ns,
  least(period.end_ns, lead(period.start_ns) OVER in_order) AS end_ns,
  lead(period.start_ns) OVER in_order AS next_ns,
  lead(serving_steps.phase) OVER in_order AS next_phase,
  min(period.start_ns) FILTER (serving_steps.phase IN ('decode', 'mixed')) OVER later AS next_decode_ns,
  count(*) FILTER (serving_steps.phase IN ('decode', 'mixed')) OVER so_far AS decodes
FROM period
JOIN serving_steps
  ON serving_steps.run_id = period.run_id AND serving_steps.rank = period.rank AND serving_steps.event_id = period.step_id
WINDOW
  in_order AS (PARTITION BY period.run_id, period.rank ORDER BY period.start_ns, period.step_id),
  later AS (
    PARTITION BY period.run_id, period.rank
    ORDER BY period.start_ns, period.step_id
    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
  ),
  so_far AS (
    PARTITION BY period.run_id, period.rank
    ORDER BY period.start_ns, period.step_id
    ROWS UNBOUNDED PRECEDING
  )
