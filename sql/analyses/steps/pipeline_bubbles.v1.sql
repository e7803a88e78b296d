-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "pipeline_bubbles"
-- version  = 1
-- summary  = "Pipeline parallelism: time of each step in which a stage does not compute, with warm-up, drain and waits, and the ideal bubble for comparison."
-- requires = ["account_segments@1", "collective_arrivals@1"]
-- needs    = ["gpu", "collectives", "steps>=1", "ranks>=2"]
-- grain    = ["run_id", "rank", "step"]
-- order    = ["run_id", "rank", "step"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank. Only ranks of a pipeline: sends and receives matched with another rank connect at least two stages. Untested on real data: the traces at hand have no matched sends and receives." }
-- step            = { type = "BIGINT", unit = "id", doc = "Step number." }
-- stage           = { type = "BIGINT", unit = "count", doc = "Stage of the rank, from 0: a rank whose first send or receive of a step is a receive follows the rank that it receives from." }
-- stages          = { type = "BIGINT", unit = "count", doc = "Number of stages of its pipeline." }
-- period_ns       = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "The step's period, as in `step_summary`." }
-- busy_compute_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", doc = "Time of the period with computation running." }
-- bubble_ns       = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "period_ns minus busy_compute_ns. Includes exposed communication and idle time of any cause." }
-- bubble          = { type = "DOUBLE", unit = "ratio", aggregate = "bubble_ns/period_ns", better = "lower", doc = "bubble_ns / period_ns." }
-- ideal_bubble    = { type = "DOUBLE", unit = "ratio", null = true, doc = "(p - 1) / (m + p - 1) for p stages of equal length and m microbatches, without communication; null if microbatches is null." }
-- microbatches    = { type = "BIGINT", unit = "count", null = true, doc = "Receives from the previous stage in the step; on the first stage, sends. Null if the stages of the pipeline differ, or none passes." }
-- warmup_ns       = { type = "BIGINT", unit = "ns", null = true, aggregate = "sum", better = "lower", doc = "From the start of the period to its first computation; null, like drain_ns, without computation." }
-- drain_ns        = { type = "BIGINT", unit = "ns", null = true, aggregate = "sum", better = "lower", doc = "From the last computation of the period to its end." }
-- wait_recv_ns    = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Part of bubble_ns spent waiting in a receive for the other stage; overlaps with warmup_ns and drain_ns." }
-- wait_send_ns    = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "The same in a send." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH RECURSIVE
  pair AS (
    SELECT run_id, rank, event_id, step, start_ns, direction, peer
    FROM collective_arrivals
    WHERE direction IS NOT NULL AND instance_id IS NOT NULL AND step IS NOT NULL
  ),
  first AS (
    -- The rank that the first receive of a step is from; -1 if the first of them is a send.
    SELECT run_id, rank, step, arg_min(CASE direction WHEN 'receive' THEN peer ELSE -1 END, (start_ns, event_id)) AS previous
    FROM pair
    GROUP BY run_id, rank, step
  ),
  counted AS (
    SELECT run_id, rank, previous, count(*) AS steps
    FROM first
    GROUP BY run_id, rank, previous
  ),
  placed AS (
    SELECT run_id, rank, arg_max(previous, (steps, -previous)) AS previous
    FROM counted
    GROUP BY run_id, rank
  ),
  staged AS (
    SELECT run_id, rank, rank AS first_rank, 0::BIGINT AS stage, previous
    FROM placed
    WHERE previous = -1
    UNION ALL
    SELECT placed.run_id, placed.rank, staged.first_rank, staged.stage + 1, placed.previous
    FROM staged
    JOIN placed ON placed.run_id = staged.run_id AND placed.previous = staged.rank
  ),
  pipeline AS (
    SELECT run_id, first_rank, max(stage) + 1 AS stages
    FROM staged
    GROUP BY run_id, first_rank
    HAVING max(stage) > 0
  ),
  passed AS (
    SELECT
      staged.run_id,
      staged.rank,
      staged.first_rank,
      pair.step,
      count(*) FILTER (CASE WHEN staged.stage = 0 THEN pair.direction = 'send' ELSE pair.direction = 'receive' AND pair.peer = staged.previous END) AS batches
    FROM staged
    JOIN pair USING (run_id, rank)
    GROUP BY staged.run_id, staged.rank, staged.first_rank, pair.step
  ),
  batched AS (
    SELECT run_id, first_rank, step, CASE WHEN min(batches) = max(batches) AND min(batches) > 0 THEN min(batches) END AS microbatches
    FROM passed
    GROUP BY run_id, first_rank, step
  ),
  account AS (
    SELECT
      segment.run_id,
      segment.rank,
      segment.step,
      sum(segment.segment_ns)::BIGINT AS period_ns,
      coalesce(sum(segment.segment_ns) FILTER (segment.kind = 'computation'), 0)::BIGINT AS busy_compute_ns,
      min(segment.start_ns) FILTER (segment.kind = 'computation') - min(segment.start_ns) AS warmup_ns,
      max(segment.start_ns + segment.segment_ns)
      - max(segment.start_ns + segment.segment_ns) FILTER (segment.kind = 'computation') AS drain_ns,
      coalesce(sum(segment.segment_ns) FILTER (segment.exposure = 'wait' AND pair.direction = 'receive'), 0)::BIGINT AS wait_recv_ns,
      coalesce(sum(segment.segment_ns) FILTER (segment.exposure = 'wait' AND pair.direction = 'send'), 0)::BIGINT AS wait_send_ns
    FROM account_segments AS segment
    LEFT JOIN pair ON pair.run_id = segment.run_id AND pair.rank = segment.rank AND pair.event_id = segment.kernel_id
    WHERE segment.step IS NOT NULL
    GROUP BY segment.run_id, segment.rank, segment.step
  )
SELECT
  account.run_id,
  account.rank,
  account.step,
  staged.stage,
  pipeline.stages,
  account.period_ns,
  account.busy_compute_ns,
  account.period_ns - account.busy_compute_ns AS bubble_ns,
  (account.period_ns - account.busy_compute_ns) / account.period_ns AS bubble,
  (pipeline.stages - 1) / (batched.microbatches + pipeline.stages - 1) AS ideal_bubble,
  batched.microbatches,
  account.warmup_ns,
  account.drain_ns,
  account.wait_recv_ns,
  account.wait_send_ns
FROM account
JOIN staged USING (run_id, rank)
JOIN pipeline USING (run_id, first_rank)
LEFT JOIN batched USING (run_id, first_rank, step)
