-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- scope    = "run"
-- name     = "unbalanced_experts"
-- version  = 1
-- summary  = "Detects expert parallelism that lasts longer because ranks get different numbers of tokens in all-to-alls."
-- requires = ["collective_arrivals@1", "collectives@1", "analyzed_segments@1"]
-- needs    = ["gpu", "collectives", "message_sizes", "ranks>=2"]
-- excluded_by = ["lost_records", "mixed_attempts", "no_work"]
-- limited_by = ["lost_events", "several_processes", "ranks_missing", "late_start"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
-- min_bytes      = { type = "BIGINT", default = 1048576, unit = "bytes", min = 1, doc = "Largest input or output of a rank from which on a transfer takes time in proportion to it." }
--
-- [columns]
-- subject   = { doc = "Always: experts. Only all-to-alls on the GPU in which all ranks of the group take part and record sizes; ranks without any have no row." }
-- share     = { doc = "Exposed time of all-to-alls that equal shares would save, as a share of analyzed_ns: of a transfer, what the largest input or output is above the mean (from min_bytes on); of a wait for the rank that got most in the all-to-all before, up to what its additional tokens would take at this rank's speed of computation since then." }
-- count     = { doc = "Number of such all-to-alls." }
-- culprit   = { doc = "The rank whose experts get most tokens, with most of this time." }
-- event_id  = { doc = "The all-to-all with most of this time." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  member AS (
    SELECT
      arrival.run_id,
      arrival.rank,
      arrival.event_id,
      arrival.instance_id,
      arrival.group_key,
      arrival.start_ns,
      arrival.start_ns + arrival.dur_ns AS end_ns,
      arrival.wait_ns,
      arrival.transfer_ns,
      arrival.straggler_rank,
      collectives.in_elements,
      collectives.out_elements,
      collectives.bytes
    FROM collective_arrivals AS arrival
    JOIN collectives USING (run_id, rank, event_id)
    WHERE arrival.state = 'complete' AND arrival.on_gpu AND arrival.collective = 'all_to_all'
  ),
  instance AS (
    SELECT
      run_id,
      instance_id,
      max(bytes) AS bytes,
      greatest(max(in_elements) * count(*) / nullif(sum(in_elements), 0), max(out_elements) * count(*) / nullif(sum(out_elements), 0)) AS imbalance,
      max(out_elements) AS out_max,
      CASE
        WHEN max(out_elements) > min(out_elements) THEN arg_max(rank, (out_elements, -rank))
        WHEN max(in_elements) > min(in_elements) THEN arg_max(rank, (in_elements, -rank))
      END AS most_rank
    FROM member
    GROUP BY run_id, instance_id
    HAVING count(in_elements) = count(*) AND count(out_elements) = count(*) AND min(bytes) IS NOT NULL
  ),
  computed AS (
    -- Computation of a rank from the end of an all-to-all to that of its next one.
    SELECT member.run_id, member.rank, member.event_id, sum(segment.segment_ns) AS compute_ns
    FROM analyzed_segments AS segment
    ASOF JOIN member
      ON member.run_id = segment.run_id AND member.rank = segment.rank AND member.end_ns <= segment.start_ns
    WHERE segment.kind = 'computation'
    GROUP BY member.run_id, member.rank, member.event_id
  ),
  exposed AS (
    SELECT
      run_id,
      rank,
      kernel_id,
      any_value(step) AS step,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      sum(segment_ns)::BIGINT AS exposed_ns
    FROM analyzed_segments
    WHERE kind = 'communication'
    GROUP BY run_id, rank, kernel_id
  ),
  sized AS (
    SELECT
      member.run_id,
      member.rank,
      member.event_id,
      member.start_ns,
      member.end_ns,
      member.wait_ns,
      member.straggler_rank,
      instance.most_rank,
      CASE WHEN instance.bytes >= $min_bytes THEN member.transfer_ns * (1 - 1 / instance.imbalance) ELSE 0 END AS surplus_ns,
      lag(instance.most_rank) OVER of_group AS before_rank,
      lag(computed.compute_ns) OVER of_group * (lag(instance.out_max) OVER of_group / nullif(lag(member.out_elements) OVER of_group, 0) - 1) AS more_ns
    FROM member
    JOIN instance USING (run_id, instance_id)
    LEFT JOIN computed USING (run_id, rank, event_id)
    WINDOW of_group AS (PARTITION BY member.run_id, member.rank, member.group_key ORDER BY member.start_ns, member.event_id)
  ),
  lost AS (
    SELECT
      sized.run_id,
      sized.rank,
      sized.event_id,
      sized.start_ns,
      sized.end_ns,
      exposed.step,
      exposed.steps,
      exposed.analyzed_ns,
      sized.straggler_rank = sized.before_rank AND sized.rank <> sized.before_rank AS is_late,
      CASE WHEN is_late THEN sized.before_rank ELSE sized.most_rank END AS hot_rank,
      least(exposed.exposed_ns, sized.surplus_ns + CASE WHEN is_late THEN least(sized.wait_ns, coalesce(sized.more_ns, 0)) ELSE 0 END)::BIGINT AS lost_ns
    FROM sized
    JOIN exposed
      ON exposed.run_id = sized.run_id AND exposed.rank = sized.rank AND exposed.kernel_id = sized.event_id
  )
SELECT
  run_id,
  rank,
  steps,
  analyzed_ns,
  lost_ns > 0 AND hot_rank IS NOT NULL AS matches,
  'rank ' || hot_rank AS label,
  lost_ns,
  event_id,
  step,
  start_ns AS from_ns,
  end_ns AS to_ns,
  {
    subject: 'experts',
    saving_limit: 'the exposed time that equal numbers of tokens would save',
    observation: 'Ranks get different numbers of tokens in all-to-alls, which costs up to {lost} in longer transfers and in waits for the experts with more tokens. The largest part ({detail}) is due to the experts of {culprit}.',
    advice: 'Balance the experts: in training with a balancing loss or bias of the router, or a limit of tokens per expert; in serving by placing and replicating experts by their measured load (EPLB).',
    evidence: 'alltoall_imbalance',
    evidence_filter: NULL::VARCHAR,
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM lost
