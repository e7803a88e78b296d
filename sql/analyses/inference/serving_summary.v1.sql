-- /// tw
-- kind     = "analysis"
-- name     = "serving_summary"
-- version  = 1
-- summary  = "Steps of an inference server per phase: batch, tokens per second, time per output token, exposed communication, and gaps between steps."
-- requires = ["serving_steps@1", "serving_periods@1", "device_segments@1", "collectives@1"]
-- grain    = ["run_id", "rank", "phase"]
-- order    = ["run_id", "rank", "phase"]
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run; traces without annotations of a server (`phase_rules`) have no row." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- phase               = { type = "VARCHAR", doc = "prefill, decode, mixed, diffusion or other, as in `inference_steps`." }
-- steps               = { type = "BIGINT", unit = "count", doc = "Number of steps." }
-- requests            = { type = "BIGINT", null = true, unit = "count", doc = "Median number of requests in a step; null if not recorded." }
-- tokens              = { type = "BIGINT", null = true, unit = "count", doc = "Prefill and decode tokens of these steps; null if a step does not record them." }
-- span_ns             = { type = "BIGINT", unit = "ns", doc = "From the start of the first of these steps on the host to the end of the last on the host or GPU, whichever is later; steps of other phases in between included." }
-- tokens_per_s        = { type = "DOUBLE", null = true, doc = "tokens per second of span_ns." }
-- time_per_token_ns   = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Time per output token: median time from the start of a step's GPU work to that of the next step that decodes, with what runs in between; a step makes one token per request. With speculative decoding a step makes more, and steps of a draft model count as steps. Null for steps that do not decode." }
-- gpu_ns              = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "GPU time of these steps, from the first to the last activity of each, but not beyond the start of the next step: compute_ns + exposed_comm_ns + exposed_memory_ns + idle_ns. Null, like the next columns, if no step has GPU activity." }
-- compute_ns          = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Of it, time with computation." }
-- exposed_comm_ns     = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Of it, time with communication and without computation." }
-- exposed_alltoall_ns = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Of exposed_comm_ns, time of all-to-alls: expert parallelism." }
-- exposed_memory_ns   = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Of gpu_ns, time with copies, memsets or other activities only." }
-- idle_ns             = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Of gpu_ns, time in which nothing runs." }
-- busy_share          = { type = "DOUBLE", null = true, unit = "ratio", better = "higher", doc = "Share of gpu_ns in which something runs." }
-- between_ns          = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "From the end of each step's GPU work to the start of the next step's, of any phase: sampling, if it is launched outside of the annotation, and gaps." }
-- gap_ns              = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Of between_ns, time in which nothing runs." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  counted AS (
    SELECT
      serving_steps.run_id,
      serving_steps.rank,
      serving_steps.phase,
      serving_steps.requests,
      coalesce(prefill_tokens + decode_tokens, prefill_tokens, decode_tokens) AS tokens,
      serving_steps.start_ns,
      greatest(serving_steps.end_ns, period.end_ns) AS end_ns,
      CASE WHEN serving_steps.phase IN ('decode', 'mixed') THEN period.next_decode_ns - period.start_ns END AS until_next_ns
    FROM serving_steps
    LEFT JOIN serving_periods AS period USING (run_id, rank, event_id)
  ),
  per_phase AS (
    SELECT
      run_id,
      rank,
      phase,
      count(*) AS steps,
      quantile_disc(requests, 0.5) AS requests,
      CASE WHEN count(tokens) = count(*) THEN sum(tokens)::BIGINT END AS tokens,
      max(end_ns) - min(start_ns) AS span_ns,
      quantile_disc(until_next_ns, 0.5) AS time_per_token_ns
    FROM counted
    GROUP BY run_id, rank, phase
  ),
  part AS (
    SELECT
      period.run_id,
      period.rank,
      period.phase,
      segment.kind,
      segment.kernel_id,
      greatest(least(segment.start_ns + segment.segment_ns, period.end_ns) - greatest(segment.start_ns, period.start_ns), 0) AS within_ns,
      greatest(least(segment.start_ns + segment.segment_ns, period.next_ns) - greatest(segment.start_ns, period.end_ns), 0) AS between_ns
    FROM (
      -- The last step's period ends with its work.
      SELECT run_id, rank, phase, start_ns, end_ns, coalesce(next_ns, end_ns) AS next_ns
      FROM serving_periods
    ) AS period
    JOIN device_segments AS segment
      ON segment.run_id = period.run_id
      AND segment.rank = period.rank
      AND segment.start_ns < period.next_ns
      AND segment.start_ns + segment.segment_ns > period.start_ns
  ),
  on_gpu AS (
    SELECT
      part.run_id,
      part.rank,
      part.phase,
      sum(part.within_ns)::BIGINT AS gpu_ns,
      coalesce(sum(part.within_ns) FILTER (part.kind = 'computation'), 0)::BIGINT AS compute_ns,
      coalesce(sum(part.within_ns) FILTER (part.kind = 'communication'), 0)::BIGINT AS exposed_comm_ns,
      coalesce(sum(part.within_ns) FILTER (part.kind = 'communication' AND collectives.collective = 'all_to_all'), 0)::BIGINT AS exposed_alltoall_ns,
      coalesce(sum(part.within_ns) FILTER (part.kind IN ('memory', 'other')), 0)::BIGINT AS exposed_memory_ns,
      coalesce(sum(part.within_ns) FILTER (part.kind = 'idle'), 0)::BIGINT AS idle_ns,
      sum(part.between_ns)::BIGINT AS between_ns,
      coalesce(sum(part.between_ns) FILTER (part.kind = 'idle'), 0)::BIGINT AS gap_ns
    FROM part
    LEFT JOIN collectives
      ON collectives.run_id = part.run_id AND collectives.rank = part.rank AND collectives.event_id = part.kernel_id
    GROUP BY part.run_id, part.rank, part.phase
  )
SELECT
  per_phase.run_id,
  per_phase.rank,
  per_phase.phase,
  per_phase.steps,
  per_phase.requests,
  per_phase.tokens,
  per_phase.span_ns,
  per_phase.tokens * 1e9 / nullif(per_phase.span_ns, 0) AS tokens_per_s,
  per_phase.time_per_token_ns,
  on_gpu.gpu_ns,
  on_gpu.compute_ns,
  on_gpu.exposed_comm_ns,
  on_gpu.exposed_alltoall_ns,
  on_gpu.exposed_memory_ns,
  on_gpu.idle_ns,
  1 - on_gpu.idle_ns / nullif(on_gpu.gpu_ns, 0) AS busy_share,
  on_gpu.between_ns,
  on_gpu.gap_ns
FROM per_phase
LEFT JOIN on_gpu USING (run_id, rank, phase)
