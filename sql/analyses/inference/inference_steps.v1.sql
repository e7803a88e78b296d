-- /// tw
-- kind     = "analysis"
-- name     = "inference_steps"
-- version  = 1
-- summary  = "Steps of an inference server by phase (prefill, decode, mixed, diffusion): requests, tokens, GPU time and tokens per second."
-- requires = ["serving_steps@1", "serving_kernels@1", "kernels_attributed@1", "serving_attention_rules@1", "dtypes@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns", "event_id"]
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run. Steps are annotations of vLLM, SGLang, TensorRT-LLM and xDiT (`phase_rules`); traces without them have no row. Time to first token is not in a trace: a worker does not record which request a step belongs to, nor when it arrived; gpu_ns of prefill steps is what a trace shows of it." }
-- rank             = { type = "INTEGER", doc = "The rank. Counts and sums are those of the annotation, equal on all ranks of a tensor-parallel group." }
-- event_id         = { type = "BIGINT", unit = "id", doc = "The annotation; of nested ones, which are one step, the outermost." }
-- name             = { type = "VARCHAR", doc = "Its name." }
-- phase            = { type = "VARCHAR", doc = "prefill, decode, mixed (requests of both kinds), diffusion or other." }
-- step             = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step that contains its start." }
-- requests         = { type = "BIGINT", null = true, unit = "count", doc = "Number of requests in the batch; null if not recorded." }
-- prefill_requests = { type = "BIGINT", null = true, unit = "count", doc = "Requests whose prompt is processed." }
-- decode_requests  = { type = "BIGINT", null = true, unit = "count", doc = "Requests that generate tokens." }
-- prefill_tokens   = { type = "BIGINT", null = true, unit = "count", doc = "Prompt tokens processed." }
-- decode_tokens    = { type = "BIGINT", null = true, unit = "count", doc = "Tokens processed for requests that generate; one per request if only the number of requests is recorded." }
-- key_tokens       = { type = "BIGINT", null = true, unit = "count", doc = "Tokens attended to, summed over requests." }
-- query_key_tokens = { type = "BIGINT", null = true, unit = "count", doc = "Query tokens times tokens attended to, summed over requests." }
-- start_ns         = { type = "BIGINT", signed = true, unit = "ts", doc = "Start on the host." }
-- host_ns          = { type = "BIGINT", unit = "ns", better = "lower", doc = "Duration on the host." }
-- gpu_start_ns     = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Start of the first GPU activity launched within the step on its thread, whenever it ran; null if there is none." }
-- gpu_ns           = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "From gpu_start_ns to the latest end of these activities." }
-- busy_ns          = { type = "BIGINT", null = true, unit = "ns", better = "lower", doc = "Time in which at least one of them ran." }
-- tokens_per_s     = { type = "DOUBLE", null = true, doc = "Prefill and decode tokens per second, from the start on the host to the end on the host or GPU, whichever is later." }
-- busy_tokens_per_s = { type = "DOUBLE", null = true, doc = "The same tokens per second of busy_ns: an upper bound, reached if the GPU never waited." }
-- attention_flop   = { type = "BIGINT", null = true, unit = "flop", doc = "FLOP of causal attention over all layers on this rank, from the sums of the annotation and the heads in the shapes of attention operators; an upper bound if layers attend to a window only." }
-- kv_bytes         = { type = "BIGINT", null = true, unit = "bytes", doc = "Size of the keys and values attended to, in the type of the recorded key tensor; an upper bound if layers attend to a window only." }
-- reason           = { type = "VARCHAR", null = true, doc = "Why attention_flop and kv_bytes are null: no token sums recorded; no attention shapes (graphs need `tw derive graphs`); attention layers not distinguishable; attention shapes differ." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  reached AS (
    SELECT
      run_id,
      rank,
      step_id,
      start_ns,
      end_ns,
      max(end_ns) OVER (
        PARTITION BY run_id, rank, step_id
        ORDER BY start_ns, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS reached_ns
    FROM serving_kernels
  ),
  on_gpu AS (
    SELECT
      run_id,
      rank,
      step_id,
      min(start_ns) AS gpu_start_ns,
      max(end_ns) AS gpu_end_ns,
      sum(greatest(end_ns - greatest(start_ns, coalesce(reached_ns, start_ns)), 0))::BIGINT AS busy_ns
    FROM reached
    GROUP BY run_id, rank, step_id
  ),
  attention AS (
    SELECT
      launched.run_id,
      launched.rank,
      launched.step_id,
      attributed.op_run,
      attributed.op_id,
      attributed.op_sig
    FROM serving_kernels AS launched
    JOIN kernels_attributed AS attributed USING (run_id, rank, event_id)
    WHERE contains(attributed.op_sig, 'attention')
  ),
  shaped AS (
    SELECT
      op_sig,
      regexp_extract(op_sig, pattern, 1)::BIGINT AS heads,
      regexp_extract(op_sig, pattern, 2)::BIGINT AS size,
      regexp_extract(op_sig, pattern, 3)::BIGINT AS key_heads,
      replace(lower(regexp_extract(op_sig, pattern, 4)), 'c10::', '') AS dtype
    FROM (
      SELECT DISTINCT op_sig
      FROM attention
    ) AS distinct_sig
    JOIN serving_attention_rules ON regexp_matches(op_sig, pattern)
  ),
  layers AS (
    SELECT
      attention.run_id,
      attention.rank,
      attention.step_id,
      bool_or(attention.op_id IS NULL) AS is_unclear,
      count(DISTINCT (attention.op_run, attention.op_id)) AS layers,
      count(DISTINCT (shaped.heads, shaped.size, shaped.key_heads, shaped.dtype)) AS kinds,
      min(shaped.heads) AS heads,
      min(shaped.size) AS size,
      min(shaped.key_heads) AS key_heads,
      min(dtypes.element_bytes) AS element_bytes
    FROM attention
    JOIN shaped USING (op_sig)
    LEFT JOIN dtypes USING (dtype)
    GROUP BY attention.run_id, attention.rank, attention.step_id
  ),
  result AS (
    SELECT
      serving_steps.run_id,
      serving_steps.rank,
      serving_steps.event_id,
      serving_steps.name,
      serving_steps.phase,
      serving_steps.step,
      serving_steps.requests,
      serving_steps.prefill_requests,
      serving_steps.decode_requests,
      serving_steps.prefill_tokens,
      serving_steps.decode_tokens,
      serving_steps.key_tokens,
      serving_steps.query_key_tokens,
      serving_steps.visible_pairs,
      serving_steps.start_ns,
      serving_steps.end_ns - serving_steps.start_ns AS host_ns,
      on_gpu.gpu_start_ns,
      on_gpu.gpu_end_ns - on_gpu.gpu_start_ns AS gpu_ns,
      on_gpu.busy_ns,
      coalesce(
        serving_steps.prefill_tokens + serving_steps.decode_tokens,
        serving_steps.prefill_tokens,
        serving_steps.decode_tokens
      ) AS tokens,
      greatest(serving_steps.end_ns, coalesce(on_gpu.gpu_end_ns, serving_steps.end_ns))
        - serving_steps.start_ns AS total_ns,
      layers.layers,
      layers.heads,
      layers.size,
      layers.key_heads,
      layers.element_bytes,
      CASE
        WHEN serving_steps.visible_pairs IS NULL THEN 'no token sums recorded'
        WHEN layers.step_id IS NULL THEN 'no attention shapes'
        WHEN layers.is_unclear THEN 'attention layers not distinguishable'
        WHEN layers.kinds > 1 THEN 'attention shapes differ'
      END AS reason
    FROM serving_steps
    LEFT JOIN on_gpu
      ON on_gpu.run_id = serving_steps.run_id
      AND on_gpu.rank = serving_steps.rank
      AND on_gpu.step_id = serving_steps.event_id
    LEFT JOIN layers
      ON layers.run_id = serving_steps.run_id
      AND layers.rank = serving_steps.rank
      AND layers.step_id = serving_steps.event_id
  )
SELECT
  run_id,
  rank,
  event_id,
  name,
  phase,
  step,
  requests,
  prefill_requests,
  decode_requests,
  prefill_tokens,
  decode_tokens,
  key_tokens,
  query_key_tokens,
  start_ns,
  host_ns,
  gpu_start_ns,
  gpu_ns,
  busy_ns,
  tokens * 1e9 / nullif(total_ns, 0) AS tokens_per_s,
  tokens * 1e9 / nullif(busy_ns, 0) AS busy_tokens_per_s,
  CASE WHEN reason IS NULL THEN (4 * heads * size * layers * visible_pairs)::BIGINT END AS attention_flop,
  CASE WHEN reason IS NULL THEN (2 * key_tokens * key_heads * size * layers * element_bytes)::BIGINT END AS kv_bytes,
  reason
FROM result
