-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "prefill_delays_decode"
-- version  = 1
-- summary  = "Detects steps of an inference server that only prefill while other requests wait for their next token."
-- requires = ["serving_periods@1", "analyzed_intervals@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.5 }
--
-- [columns]
-- subject   = { doc = "Always: prefill. Ranks without two steps that decode have no row." }
-- share     = { doc = "Time of such delays as a share of the time from the first to the last step that decodes. A delay is from the start of the GPU work of a prefill step after a step that decodes to the next step that decodes, if that one decodes more requests than were prefilled in between: the others waited." }
-- count     = { doc = "Number of delays." }
-- saving_ns = { doc = "Always null: the prefill still has to run." }
-- event_id  = { doc = "The first prefill step of the longest delay." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  decoding AS (
    SELECT run_id, rank, decodes, event_id, start_ns, next_decode_ns, decode_requests
    FROM serving_periods
    WHERE phase IN ('decode', 'mixed')
  ),
  prefilled AS (
    SELECT
      run_id,
      rank,
      decodes,
      min(start_ns) AS from_ns,
      arg_min(event_id, (start_ns, event_id)) AS event_id,
      arg_min(step, (start_ns, event_id)) AS step,
      sum(prefill_requests) AS requests
    FROM serving_periods
    WHERE phase = 'prefill'
    GROUP BY run_id, rank, decodes
  ),
  decode_interval AS (
    SELECT
      decoding.run_id,
      decoding.rank,
      decoding.next_decode_ns - decoding.start_ns AS interval_ns,
      prefilled.event_id,
      prefilled.step,
      prefilled.from_ns,
      decoding.next_decode_ns AS to_ns,
      coalesce(after.decode_requests > prefilled.requests, FALSE) AS is_delayed
    FROM decoding
    JOIN decoding AS after
      ON after.run_id = decoding.run_id AND after.rank = decoding.rank AND after.decodes = decoding.decodes + 1
    LEFT JOIN prefilled
      ON prefilled.run_id = decoding.run_id AND prefilled.rank = decoding.rank AND prefilled.decodes = decoding.decodes
  ),
  per_rank AS (
    SELECT
      run_id,
      rank,
      count(*) FILTER (is_delayed) AS count,
      coalesce(sum(to_ns - from_ns) FILTER (is_delayed), 0) / sum(interval_ns) AS share,
      quantile_disc(interval_ns, 0.5) FILTER (event_id IS NULL) AS usual_ns,
      arg_max(event_id, (to_ns - from_ns, -from_ns)) FILTER (is_delayed) AS event_id,
      arg_max(step, (to_ns - from_ns, -from_ns)) FILTER (is_delayed) AS step,
      arg_max(from_ns, (to_ns - from_ns, -from_ns)) FILTER (is_delayed) AS from_ns,
      arg_max(to_ns, (to_ns - from_ns, -from_ns)) FILTER (is_delayed) AS to_ns
    FROM decode_interval
    GROUP BY run_id, rank
    HAVING sum(interval_ns) > 0
  ),
  analyzed AS (
    SELECT DISTINCT run_id, rank, steps, analyzed_ns
    FROM analyzed_intervals
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'prefill' AS subject,
  per_rank.share,
  TRUE AS is_representative,
  per_rank.count,
  analyzed.steps,
  analyzed.analyzed_ns,
  NULL::BIGINT AS saving_ns,
  'the prefill still has to run: in smaller parts it delays each token less' AS saving_limit,
  'Requests that generate wait while the GPU only prefills other prompts, for ' || format('{:.1f}', 100 * per_rank.share)
  || ' % of the time between decode steps. The longest wait is {worst}{where}'
  || CASE WHEN usual_ns IS NULL THEN '.' ELSE '; without prefill the next decode step follows after {detail} (median).' END AS observation,
  'Prefill in smaller chunks, in steps that also decode (chunked prefill, mixed batches), limit the tokens per step, or run prefill and decode on different GPUs (disaggregated serving).' AS advice,
  'serving_summary' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  per_rank.event_id,
  per_rank.from_ns,
  per_rank.to_ns,
  per_rank.step,
  per_rank.usual_ns AS detail_ns
FROM per_rank
JOIN analyzed USING (run_id, rank)
