-- /// tw
-- kind     = "view"
-- name     = "serving_steps"
-- version  = 1
-- summary  = "Steps of an inference server by phase, as its annotations name them: requests and tokens."
-- requires = ["annotations@1", "phase_rules@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns", "event_id"]
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run." }
-- rank             = { type = "INTEGER", doc = "The rank." }
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
-- visible_pairs    = { type = "BIGINT", null = true, unit = "count", doc = "Pairs of a query token and a token that causal attention lets it see, summed over requests." }
-- pid              = { type = "VARCHAR", null = true, doc = "Process of the annotation." }
-- tid              = { type = "VARCHAR", null = true, doc = "Thread of the annotation." }
-- start_ns         = { type = "BIGINT", signed = true, unit = "ts", doc = "Start on the host." }
-- end_ns           = { type = "BIGINT", signed = true, unit = "ts", doc = "End on the host." }
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
    JOIN phase_rules USING (rule_id)
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
    JOIN field USING (name)
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
      arg_min(fields['decode_sqsk'], pre) AS decode_sqsk,
      -- Of causal attention: each query token sees all keys but those after it.
      prefill_sqsk - (prefill_sqsq - prefill_sq) // 2 AS prefill_pairs,
      decode_sqsk - (decode_sqsq - decode_sq) // 2 AS decode_pairs
    FROM numbered
    GROUP BY run_id, rank, number
  )
SELECT
  run_id,
  rank,
  event_id,
  name,
  CASE
    WHEN ruled_phase IN ('diffusion', 'other') THEN ruled_phase
    WHEN prefill_requests > 0 AND decode_requests > 0 THEN 'mixed'
    WHEN prefill_requests > 0 THEN 'prefill'
    WHEN decode_requests > 0 THEN 'decode'
    ELSE coalesce(ruled_phase, 'other')
  END AS phase,
  step,
  coalesce(prefill_requests + decode_requests, prefill_requests, decode_requests, other_requests) AS requests,
  prefill_requests,
  decode_requests,
  prefill_sq AS prefill_tokens,
  coalesce(decode_sq, decode_requests) AS decode_tokens,
  -- Where one kind of requests has no sums, the step has no requests of this kind.
  coalesce(prefill_sk + decode_sk, prefill_sk, decode_sk) AS key_tokens,
  coalesce(prefill_sqsk + decode_sqsk, prefill_sqsk, decode_sqsk) AS query_key_tokens,
  coalesce(prefill_pairs + decode_pairs, prefill_pairs, decode_pairs) AS visible_pairs,
  pid,
  tid,
  start_ns,
  end_ns
FROM recorded
