-- /// tw
-- kind     = "analysis"
-- name     = "inference_steps"
-- version  = 1
-- summary  = "Steps of an inference server by phase (prefill, decode, mixed, diffusion): requests, tokens, GPU time and tokens per second."
-- requires = ["annotations@1", "runtime@1", "kernels@1", "kernels_attributed@1", "phase_rules@1", "serving_attention_rules@1", "dtypes@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns", "event_id"]
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run. Steps are annotations of vLLM, SGLang and xDiT (`phase_rules`); traces without them have no row. Time to first token is not in a trace: a worker does not record which request a step belongs to, nor when it arrived; gpu_ns of prefill steps is what a trace shows of it." }
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
  named AS (
    SELECT name, arg_min(phase_rules.phase, rule_id) AS ruled_phase, min(rule_id) AS rule_id
    FROM (
      SELECT DISTINCT name
      FROM annotations
      WHERE NOT on_gpu
    ) AS distinct_name
    JOIN phase_rules ON regexp_matches(distinct_name.name, phase_rules.pattern)
    GROUP BY name
  ),
  field AS (
    SELECT
      named.name,
      phase_rules.phase,
      map_from_entries(
        list_zip(
          string_split(phase_rules.fields, ','),
          list_transform(
            regexp_extract_all(named.name, '[0-9]+')[:len(string_split(phase_rules.fields, ','))],
            LAMBDA number: TRY_CAST(number AS BIGINT)
          )
        )
      ) AS fields
    FROM named
    JOIN phase_rules ON phase_rules.rule_id = named.rule_id
  ),
  marked AS (
    SELECT
      annotations.run_id,
      annotations.rank,
      annotations.event_id,
      annotations.name,
      annotations.pid,
      annotations.tid,
      annotations.ts_ns AS start_ns,
      annotations.ts_ns + annotations.dur_ns AS end_ns,
      annotations.step,
      annotations.pre,
      field.phase,
      field.fields,
      coalesce(annotations.pre > max(annotations.post) OVER earlier, TRUE) AS is_outer
    FROM annotations
    JOIN field ON field.name = annotations.name
    WHERE NOT annotations.on_gpu
    WINDOW earlier AS (
      PARTITION BY annotations.run_id, annotations.rank
      ORDER BY annotations.pre
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  numbered AS (
    SELECT
      run_id,
      rank,
      event_id,
      name,
      pid,
      tid,
      start_ns,
      end_ns,
      step,
      pre,
      phase,
      fields,
      is_outer,
      sum(is_outer::BIGINT) OVER (
        PARTITION BY run_id, rank
        ORDER BY pre
        ROWS UNBOUNDED PRECEDING
      ) AS number
    FROM marked
  ),
  recorded AS (
    -- Of nested annotations each field of the outermost that has it.
    SELECT
      run_id,
      rank,
      number,
      min(event_id) FILTER (is_outer) AS event_id,
      min(name) FILTER (is_outer) AS name,
      min(pid) FILTER (is_outer) AS pid,
      min(tid) FILTER (is_outer) AS tid,
      min(start_ns) FILTER (is_outer) AS start_ns,
      min(end_ns) FILTER (is_outer) AS end_ns,
      min(step) FILTER (is_outer) AS step,
      arg_min(phase, pre) AS ruled_phase,
      arg_min(fields['requests'], pre) AS other_requests,
      arg_min(fields['prefill_requests'], pre) AS prefill_requests,
      arg_min(fields['decode_requests'], pre) AS decode_requests,
      arg_min(fields['prefill_sq'], pre) AS prefill_sq,
      arg_min(fields['prefill_sk'], pre) AS prefill_sk,
      arg_min(fields['prefill_sqsq'], pre) AS prefill_sqsq,
      arg_min(fields['prefill_sqsk'], pre) AS prefill_sqsk,
      arg_min(fields['decode_sq'], pre) AS decode_sq,
      arg_min(fields['decode_sk'], pre) AS decode_sk,
      arg_min(fields['decode_sqsq'], pre) AS decode_sqsq,
      arg_min(fields['decode_sqsk'], pre) AS decode_sqsk
    FROM numbered
    GROUP BY run_id, rank, number
  ),
  inference_step AS (
    SELECT
      run_id,
      rank,
      event_id,
      name,
      pid,
      tid,
      start_ns,
      end_ns,
      step,
      CASE
        WHEN ruled_phase IN ('diffusion', 'other') THEN ruled_phase
        WHEN prefill_requests > 0 AND decode_requests > 0 THEN 'mixed'
        WHEN prefill_requests > 0 THEN 'prefill'
        WHEN decode_requests > 0 THEN 'decode'
        ELSE coalesce(ruled_phase, 'other')
      END AS phase,
      coalesce(prefill_requests + decode_requests, prefill_requests, decode_requests, other_requests) AS requests,
      prefill_requests,
      decode_requests,
      prefill_sq AS prefill_tokens,
      coalesce(decode_sq, decode_requests) AS decode_tokens,
      prefill_sk + decode_sk AS key_tokens,
      prefill_sqsk + decode_sqsk AS query_key_tokens,
      -- Of causal attention: each query token sees all keys but those after it.
      prefill_sqsk + decode_sqsk - (prefill_sqsq + decode_sqsq - prefill_sq - decode_sq) // 2 AS visible_pairs
    FROM recorded
  ),
  launch AS (
    SELECT runtime.run_id, runtime.rank, runtime.event_id AS runtime_id, inference_step.event_id AS step_id
    FROM runtime
    ASOF JOIN inference_step
      ON inference_step.run_id = runtime.run_id
      AND inference_step.rank = runtime.rank
      AND inference_step.pid IS NOT DISTINCT FROM runtime.pid
      AND inference_step.tid IS NOT DISTINCT FROM runtime.tid
      AND inference_step.start_ns <= runtime.ts_ns
    WHERE runtime.ts_ns < inference_step.end_ns
  ),
  activity AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      launch.step_id,
      kernels.event_id,
      kernels.ts_ns,
      kernels.ts_ns + kernels.dur_ns AS end_ns
    FROM kernels
    JOIN launch
      ON launch.run_id = kernels.run_id AND launch.rank = kernels.rank AND launch.runtime_id = kernels.runtime_id
  ),
  reached AS (
    SELECT
      run_id,
      rank,
      step_id,
      ts_ns,
      end_ns,
      max(end_ns) OVER (
        PARTITION BY run_id, rank, step_id
        ORDER BY ts_ns, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS reached_ns
    FROM activity
  ),
  on_gpu AS (
    SELECT
      run_id,
      rank,
      step_id,
      min(ts_ns) AS gpu_start_ns,
      max(end_ns) AS gpu_end_ns,
      sum(greatest(end_ns - greatest(ts_ns, coalesce(reached_ns, ts_ns)), 0))::BIGINT AS busy_ns
    FROM reached
    GROUP BY run_id, rank, step_id
  ),
  attention AS (
    SELECT
      activity.run_id,
      activity.rank,
      activity.step_id,
      attributed.op_run,
      attributed.op_id,
      attributed.op_sig
    FROM activity
    JOIN kernels_attributed AS attributed
      ON attributed.run_id = activity.run_id
      AND attributed.rank = activity.rank
      AND attributed.event_id = activity.event_id
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
    JOIN shaped ON shaped.op_sig = attention.op_sig
    LEFT JOIN dtypes ON dtypes.dtype = shaped.dtype
    GROUP BY attention.run_id, attention.rank, attention.step_id
  ),
  result AS (
    SELECT
      inference_step.run_id,
      inference_step.rank,
      inference_step.event_id,
      inference_step.name,
      inference_step.phase,
      inference_step.step,
      inference_step.requests,
      inference_step.prefill_requests,
      inference_step.decode_requests,
      inference_step.prefill_tokens,
      inference_step.decode_tokens,
      inference_step.key_tokens,
      inference_step.query_key_tokens,
      inference_step.visible_pairs,
      inference_step.start_ns,
      inference_step.end_ns - inference_step.start_ns AS host_ns,
      on_gpu.gpu_start_ns,
      on_gpu.gpu_end_ns - on_gpu.gpu_start_ns AS gpu_ns,
      on_gpu.busy_ns,
      coalesce(
        inference_step.prefill_tokens + inference_step.decode_tokens,
        inference_step.prefill_tokens,
        inference_step.decode_tokens
      ) AS tokens,
      greatest(inference_step.end_ns, coalesce(on_gpu.gpu_end_ns, inference_step.end_ns))
        - inference_step.start_ns AS total_ns,
      layers.layers,
      layers.heads,
      layers.size,
      layers.key_heads,
      layers.element_bytes,
      CASE
        WHEN inference_step.visible_pairs IS NULL THEN 'no token sums recorded'
        WHEN layers.step_id IS NULL THEN 'no attention shapes'
        WHEN layers.is_unclear THEN 'attention layers not distinguishable'
        WHEN layers.kinds > 1 THEN 'attention shapes differ'
      END AS reason
    FROM inference_step
    LEFT JOIN on_gpu
      ON on_gpu.run_id = inference_step.run_id
      AND on_gpu.rank = inference_step.rank
      AND on_gpu.step_id = inference_step.event_id
    LEFT JOIN layers
      ON layers.run_id = inference_step.run_id
      AND layers.rank = inference_step.rank
      AND layers.step_id = inference_step.event_id
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
