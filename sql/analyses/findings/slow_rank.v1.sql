-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- scope    = "run"
-- name     = "slow_rank"
-- version  = 1
-- summary  = "Detects stragglers: ranks that the other ranks wait for at collectives."
-- requires = ["collective_arrivals@1", "wait_attribution@1", "wait_attribution_basis@1", "analyzed_intervals@1", "analyzed_segments@1", "computation_reasons@1", "ranks@1"]
-- needs    = ["collectives", "ranks>=2"]
-- excluded_by = ["lost_records", "mixed_attempts", "no_work"]
-- limited_by = ["lost_events", "several_processes", "ranks_missing", "late_start"]
-- confidence = "high"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
--
-- [columns]
-- subject   = { doc = "Always: collectives." }
-- share     = { doc = "saving_ns as a share of analyzed_ns. If wait_attribution is derived, a wait counts for the rank that caused it, else for the one that arrived last." }
-- count     = { doc = "Collectives at which another rank waited for this one." }
-- culprit   = { doc = "What this rank does longer than the ranks that wait for it, for most of the waits: computation, copies, data (loading of input) or host (anything else); null if wait_attribution is not derived. `tw check` names its culprit instead, if this rank has a separate finding of it." }
-- analyzed_ns = { doc = "Analyzed time of the rank that waited longest for this one; its own if none waited." }
-- saving_ns = { doc = "Upper bound on the time saved in the analyzed interval: by how much longer than this one a rank that waits for it communicates while nothing else runs, without sends and receives; at most its waits, and on the host all of them." }
-- event_id  = { doc = "This rank's collective at which the others waited longest in total: on GPUs while nothing else ran, if they did." }
-- from_ns   = { doc = "When the first of them began to wait there, by the clock of this rank: its longest wait before to_ns." }
-- to_ns     = { doc = "When the last rank arrived there: the waits end." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  run AS (
    SELECT
      ranks.run_id,
      bool_and(coalesce(ranks.wait_attribution, FALSE)) AS has_attribution
    FROM ranks
    GROUP BY ranks.run_id
  ),
  group_ranks AS (
    SELECT run_id, coalesce(group_key, '') AS group_key, list_sort(list(DISTINCT rank)) AS ranks
    FROM collective_arrivals
    WHERE wait_ns IS NOT NULL OR pair_wait_ns IS NOT NULL
    GROUP BY run_id, coalesce(group_key, '')
  ),
  groups AS (
    -- Where a rank is in groups of different ranks, the last one to arrive may have waited in another group.
    SELECT run_id, max(groups) > 1 AS are_nested
    FROM (
      SELECT run_id, rank, count(DISTINCT ranks) AS groups
      FROM (SELECT run_id, ranks, unnest(ranks) AS rank FROM group_ranks) AS member
      GROUP BY run_id, rank
    ) AS of_rank
    GROUP BY run_id
  ),
  chance AS (
    SELECT run_id, max(null_p99) AS null_p99, bool_and(enough_steps) AS enough_steps
    FROM wait_attribution_basis
    GROUP BY run_id
  ),
  charged AS (
    -- Communication is not what makes a rank slow.
    SELECT run_id, instance_id, waiter_rank, rank AS straggler_rank, sum(wait_ns)::BIGINT AS wait_ns
    FROM wait_attribution
    WHERE cause <> 'communication'
    GROUP BY run_id, instance_id, waiter_rank, rank
  ),
  cause AS (
    SELECT run_id, rank, arg_max(cause, (wait_ns, cause)) AS cause
    FROM (
      SELECT run_id, rank, cause, sum(wait_ns)::BIGINT AS wait_ns
      FROM wait_attribution
      WHERE cause <> 'communication'
      GROUP BY run_id, rank, cause
    ) AS of_cause
    GROUP BY run_id, rank
  ),
  caused_wait AS (
    SELECT
      arrival.run_id,
      arrival.rank,
      arrival.event_id,
      arrival.instance_id,
      arrival.start_ns,
      arrival.step,
      arrival.wait_ns AS whole_wait_ns,
      arrival.transfer_ns,
      CASE WHEN run.has_attribution THEN charged.straggler_rank ELSE arrival.straggler_rank END AS straggler_rank,
      CASE WHEN run.has_attribution THEN coalesce(charged.wait_ns, 0) ELSE arrival.wait_ns END AS wait_ns
    FROM collective_arrivals AS arrival
    JOIN run USING (run_id)
    LEFT JOIN charged
      ON run.has_attribution
      AND charged.run_id = arrival.run_id
      AND charged.instance_id = arrival.instance_id
      AND charged.waiter_rank = arrival.rank
    -- A rank that is not in the run may have arrived even later.
    WHERE arrival.wait_ns IS NOT NULL AND arrival.state = 'complete'
  ),
  exposed AS (
    SELECT run_id, rank, kernel_id AS event_id, sum(segment_ns)::BIGINT AS exposed_ns
    FROM analyzed_segments
    WHERE kind = 'communication'
    GROUP BY run_id, rank, kernel_id
  ),
  wait AS (
    SELECT
      arrival.run_id,
      arrival.rank,
      arrival.event_id,
      arrival.straggler_rank,
      arrival.instance_id,
      arrival.start_ns,
      arrival.step,
      arrival.whole_wait_ns,
      -- The transfer comes last, so it is exposed first.
      greatest(exposed.exposed_ns - arrival.transfer_ns, 0) AS idle_wait_ns,
      arrival.start_ns + arrival.wait_ns AS end_ns,
      arrival.wait_ns,
      span.steps,
      span.analyzed_ns,
      -- Latest end of earlier waits for that rank: time up to here is already counted.
      coalesce(max(arrival.start_ns + arrival.wait_ns) OVER earlier, arrival.start_ns) AS counted_ns
    FROM caused_wait AS arrival
    JOIN analyzed_intervals AS span USING (run_id, rank)
    LEFT JOIN exposed USING (run_id, rank, event_id)
    WHERE arrival.start_ns >= span.start_ns AND arrival.start_ns < span.end_ns
    WINDOW earlier AS (
      PARTITION BY arrival.run_id, arrival.rank, arrival.straggler_rank
      ORDER BY arrival.start_ns, arrival.event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
  ),
  communicated AS (
    -- Communication but sends and receives, while nothing else runs on the GPU; no rows of ranks without one.
    SELECT
      segment.run_id,
      segment.rank,
      coalesce(sum(segment.segment_ns) FILTER (arrival.event_id IS NOT NULL AND arrival.direction IS NULL), 0)::BIGINT AS exposed_ns
    FROM analyzed_segments AS segment
    LEFT JOIN collective_arrivals AS arrival
      ON arrival.run_id = segment.run_id AND arrival.rank = segment.rank AND arrival.event_id = segment.kernel_id
    GROUP BY segment.run_id, segment.rank
  ),
  pair AS (
    SELECT
      run_id,
      rank AS waiter,
      straggler_rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      sum(greatest(end_ns - greatest(start_ns, counted_ns), 0))::BIGINT AS waited_ns
    FROM wait
    WHERE straggler_rank IS NOT NULL
    GROUP BY run_id, rank, straggler_rank
  ),
  caused AS (
    SELECT
      pair.run_id,
      pair.straggler_rank AS rank,
      sum(pair.waited_ns)::BIGINT AS caused_ns,
      -- All ranks take equally long: the late one works longer by what it communicates less.
      max(greatest(least(pair.waited_ns, coalesce(waiting.exposed_ns - late.exposed_ns, pair.waited_ns)), 0)) AS saving_ns,
      arg_max(pair.steps, (pair.waited_ns, -pair.waiter)) AS steps,
      arg_max(pair.analyzed_ns, (pair.waited_ns, -pair.waiter)) AS analyzed_ns
    FROM pair
    LEFT JOIN communicated AS waiting ON waiting.run_id = pair.run_id AND waiting.rank = pair.waiter
    LEFT JOIN communicated AS late ON late.run_id = pair.run_id AND late.rank = pair.straggler_rank
    GROUP BY pair.run_id, pair.straggler_rank
  ),
  instance AS (
    SELECT
      run_id,
      instance_id,
      straggler_rank AS rank,
      [coalesce(sum(idle_wait_ns) FILTER (wait_ns > 0), 0), sum(wait_ns)]::BIGINT[] AS caused_ns,
      max(whole_wait_ns) FILTER (wait_ns > 0) AS longest_ns
    FROM wait
    GROUP BY run_id, instance_id, straggler_rank
    HAVING sum(wait_ns) > 0
  ),
  counted AS (
    SELECT run_id, rank, count(*) AS count
    FROM instance
    GROUP BY run_id, rank
  ),
  own AS (
    SELECT
      wait.run_id,
      wait.rank,
      any_value(wait.steps) AS steps,
      any_value(wait.analyzed_ns) AS analyzed_ns,
      arg_max(wait.event_id, (instance.caused_ns, -wait.start_ns)) FILTER (instance.instance_id IS NOT NULL) AS event_id,
      arg_max(wait.step, (instance.caused_ns, -wait.start_ns)) FILTER (instance.instance_id IS NOT NULL) AS step,
      -- All leave together, so the waits end when the last rank arrives, on any clock.
      arg_max(wait.start_ns + wait.whole_wait_ns, (instance.caused_ns, -wait.start_ns)) FILTER (instance.instance_id IS NOT NULL) AS to_ns,
      to_ns - arg_max(instance.longest_ns, (instance.caused_ns, -wait.start_ns)) AS from_ns
    FROM wait
    LEFT JOIN instance USING (run_id, rank, instance_id)
    GROUP BY wait.run_id, wait.rank
  ),
  computed AS (
    SELECT run_id, rank, sum(segment_ns) / greatest(any_value(steps), 1) AS compute_ns
    FROM analyzed_segments
    WHERE kind = 'computation'
    GROUP BY run_id, rank
  ),
  compared AS (
    SELECT
      run_id,
      rank,
      compute_ns - quantile_disc(compute_ns, 0.5) OVER of_run AS more_ns,
      round(100 * (compute_ns / quantile_disc(compute_ns, 0.5) OVER of_run - 1))::BIGINT AS more_percent
    FROM computed
    WINDOW of_run AS (PARTITION BY run_id)
  ),
  per_rank AS (
    SELECT
      own.run_id,
      own.rank,
      coalesce(caused.steps, own.steps) AS steps,
      coalesce(counted.count, 0) AS count,
      own.event_id,
      own.step,
      own.from_ns,
      own.to_ns,
      coalesce(caused.analyzed_ns, own.analyzed_ns) AS analyzed_ns,
      coalesce(caused.saving_ns, 0) AS saving_ns,
      coalesce(caused.saving_ns, 0) / coalesce(caused.analyzed_ns, own.analyzed_ns) AS share,
      -- Halfway between its equal share of all waits and all of them: more than chance would give.
      coalesce(2 * caused.caused_ns * count(*) OVER of_run >= sum(caused.caused_ns) OVER of_run * (count(*) OVER of_run + 1), FALSE) AS is_largest,
      caused.caused_ns / sum(caused.caused_ns) OVER of_run > chance.null_p99 AS beats_chance,
      CASE WHEN run.has_attribution THEN cause.cause END AS cause,
      compared.more_percent,
      why.reason,
      why.kernel_name,
      why.percent,
      -- It is the cause if it covers at least half of the wait.
      compared.more_ns > 0 AND 2 * compared.more_ns * greatest(caused.steps, 1) >= caused.saving_ns AS computes_longer,
      coalesce(CASE WHEN run.has_attribution THEN cause.cause = 'computation' END, computes_longer, FALSE) AS computes,
      run.has_attribution AND coalesce(chance.enough_steps, FALSE) AS has_test,
      run.has_attribution AND NOT has_test AS is_short,
      NOT run.has_attribution AND groups.are_nested AND caused.saving_ns = max(caused.saving_ns) OVER of_run AS is_unclear,
      NOT run.has_attribution AND groups.are_nested AS is_nested
    FROM own
    JOIN run USING (run_id)
    JOIN groups USING (run_id)
    LEFT JOIN caused USING (run_id, rank)
    LEFT JOIN compared USING (run_id, rank)
    LEFT JOIN counted USING (run_id, rank)
    LEFT JOIN chance USING (run_id)
    LEFT JOIN cause USING (run_id, rank)
    LEFT JOIN computation_reasons AS why USING (run_id, rank)
    WINDOW of_run AS (PARTITION BY own.run_id)
  )
SELECT
  run_id,
  rank,
  'collectives' AS subject,
  share >= $warning_share AND CASE WHEN has_test THEN beats_chance WHEN is_nested THEN is_unclear ELSE is_largest END AS is_finding,
  share,
  count,
  steps,
  analyzed_ns,
  saving_ns,
  'how much longer this rank works than one that waits for it; after a fix the next slowest rank sets the pace' AS saving_limit,
  CASE WHEN is_unclear THEN 2 WHEN is_short THEN 1 ELSE 0 END AS doubt,
  CASE
    WHEN is_unclear THEN 'Other ranks wait up to {lost} for this rank at collectives with nothing else to run, but it belongs to several process groups and may be late only because it waited itself.'
    ELSE
      'Rank ' || rank || ' is late: '
      || CASE
        WHEN computes
          THEN
            CASE
              WHEN computes_longer THEN 'its computation takes ' || more_percent || ' % longer than that of the median rank'
              ELSE 'it computes longer than the ranks that wait'
            END
            || CASE reason
              WHEN 'more_work' THEN ', because it has more work: additional calls, or calls of other sizes, add ' || percent || ' % to the kernel time of the median rank'
              WHEN 'one_kernel' THEN ', because of one kernel, ' || kernel_name[:80] || ', which takes ' || percent || ' % longer per call'
              WHEN 'slower_gpu' THEN ', because its GPU runs slower: the same calls take ' || percent || ' % longer, across most of its kernels'
              ELSE ''
            END
            || '; '
        WHEN cause = 'copies' THEN 'it copies longer than the ranks that wait; '
        WHEN cause = 'data' THEN 'it loads data longer than the ranks that wait; '
        WHEN cause = 'host' AND is_short THEN 'no work of its GPU explains it, and it may only have started later; '
        WHEN cause = 'host' THEN 'its host code takes longer than that of the ranks that wait; '
        ELSE ''
      END
      || 'other ranks wait up to {lost} for it at collectives with nothing else to run.'
      || CASE WHEN is_short THEN ' Too few steps were recorded to rule out chance.' ELSE '' END
  END AS observation,
  CASE
    WHEN is_unclear THEN 'Find out who caused the waits: tw derive wait_attribution, then tw show straggler_causes.'
    WHEN computes AND reason = 'more_work'
      THEN 'Balance the work: tokens per rank (lengths, padding, packing), tokens per expert, size of the shard or stage.'
    WHEN computes AND reason = 'one_kernel'
      THEN 'Compare this kernel with that of another rank (tw diff of both ranks): its inputs (alignment, sparsity, values), its version, and what runs beside it.'
    WHEN computes AND reason = 'slower_gpu'
      THEN 'Look at the clocks, the power limit and the temperature of this GPU (nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE; rocm-smi), and replace the node if it stays slow.'
    ELSE 'Compare what it does before its collectives with another rank (tw diff, tw export trace of both): input data, host load, GPU clocks and temperature, and share of work.'
  END AS advice,
  'stragglers' AS evidence,
  NULL::VARCHAR AS evidence_filter,
  event_id,
  from_ns,
  to_ns,
  step,
  cause AS culprit
FROM per_rank
