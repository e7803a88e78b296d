-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "what_if"
-- version  = 1
-- summary  = "What each fix would save: the median step time after it, with an interval and what is assumed, largest saving first."
-- requires = ["account_segments@1", "analyzed_intervals@1", "collective_arrivals@1", "kernel_roofs@1", "host_work@1", "ranks@1", "rank_limits@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "fix"]
-- order    = ["run_id", "after_ns", "fix"]
--
-- [params]
-- min_share    = { type = "DOUBLE", unit = "ratio", default = 0.005, min = 0, doc = "Fixes that save a smaller share of the step have no row." }
-- short_gap_ns = { type = "BIGINT", unit = "ns", default = 100000, min = 0, doc = "CUDA graphs close gaps up to this duration, as in `launch_bound`." }
-- graph_gap_ns = { type = "BIGINT", unit = "ns", default = 700, min = 0, doc = "What remains of a gap between kernels of a graph. At least nothing and at most twice as much is the interval: recorded graphs have gaps of 0 (MI300) to 1 µs (V100)." }
-- kernels      = { type = "BIGINT", unit = "count", default = 3, min = 0, doc = "Number of kernels, by their time, that are put at their roof." }
-- good_kernel  = { type = "DOUBLE", unit = "ratio", default = 0.7, min = 0.01, max = 1, doc = "Share of its roof that a tuned kernel reaches: the high end of the interval. The low end and the estimate are the roof." }
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- fix          = { type = "VARCHAR", doc = "no waiting for data, CUDA graphs, no blocking calls, slow rank at the median, perfect overlap, or a kernel at its roof (the three with the most time). Fixes overlap: their savings do not add up." }
-- rank         = { type = "INTEGER", null = true, doc = "The rank with the most work, without its waits and transfers: the one that sets the pace, and the slow rank. Null without an estimate." }
-- steps        = { type = "BIGINT", unit = "count", doc = "Steps that all ranks recorded completely; 0 if there are none, and the profiling window is the step." }
-- step_ns      = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Median step time now: the longest period of any rank. Null, like the next ones, if what was recorded cannot say." }
-- after_ns     = { type = "BIGINT", unit = "ns", null = true, doc = "Median step time after the fix." }
-- low_ns       = { type = "BIGINT", unit = "ns", null = true, doc = "Low end of its interval: the 95 % interval of the median over steps (up to 8 steps: the least and the largest), of each step at its best under the assumption." }
-- high_ns      = { type = "BIGINT", unit = "ns", null = true, doc = "High end." }
-- saving_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "step_ns - after_ns." }
-- saving_share = { type = "DOUBLE", unit = "ratio", null = true, doc = "saving_ns / step_ns." }
-- assumption   = { type = "VARCHAR", doc = "What is assumed to stay as it is; without an estimate, why there is none." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      account.run_id,
      account.rank,
      span.steps,
      CASE WHEN span.steps > 0 THEN account.step ELSE -1 END AS step,
      account.segment_ns,
      account.kind,
      account.exposure,
      account.kernel_id,
      account.cause,
      coalesce(account.cause IN ('host', 'call', 'latency'), FALSE) AS is_host,
      is_host AND account.gap_ns <= $short_gap_ns AS is_short,
      -- What remains of a gap is spread over its segments.
      CASE WHEN is_short THEN account.segment_ns * least($graph_gap_ns, account.gap_ns) // account.gap_ns ELSE 0 END AS kept_ns,
      CASE WHEN is_short THEN account.segment_ns * least(2 * $graph_gap_ns, account.gap_ns) // account.gap_ns ELSE 0 END AS most_kept_ns
    FROM account_segments AS account
    JOIN analyzed_intervals AS span USING (run_id, rank)
    WHERE account.start_ns >= span.start_ns AND account.start_ns < span.end_ns
    QUALIFY span.steps > 0 OR max(span.steps) OVER (PARTITION BY account.run_id) = 0
  ),
  transferred AS (
    SELECT run_id, rank, step, sum(transfer_ns)::BIGINT AS transfer_ns
    FROM collective_arrivals
    WHERE on_gpu AND state = 'complete'
    GROUP BY run_id, rank, step
  ),
  exposed AS (
    SELECT run_id, rank, step, max(exposed_ns) AS largest_ns
    FROM (
      SELECT run_id, rank, step, kernel_id, sum(segment_ns)::BIGINT AS exposed_ns
      FROM segment
      WHERE exposure = 'transfer'
      GROUP BY run_id, rank, step, kernel_id
    ) AS of_collective
    GROUP BY run_id, rank, step
  ),
  summed AS (
    SELECT
      run_id,
      rank,
      step,
      any_value(steps) AS steps,
      sum(segment_ns)::BIGINT AS period_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'computation'), 0)::BIGINT AS compute_ns,
      coalesce(sum(segment_ns) FILTER (kind = 'communication'), 0)::BIGINT AS communication_ns,
      coalesce(sum(segment_ns) FILTER (exposure = 'wait'), 0)::BIGINT AS wait_ns,
      coalesce(sum(segment_ns) FILTER (exposure = 'transfer'), 0)::BIGINT AS transfer_ns,
      coalesce(sum(segment_ns) FILTER (cause = 'dataloader'), 0)::BIGINT AS data_ns,
      coalesce(sum(segment_ns) FILTER (cause = 'sync'), 0)::BIGINT AS sync_ns,
      coalesce(sum(segment_ns) FILTER (is_host), 0)::BIGINT AS host_ns,
      coalesce(sum(segment_ns) FILTER (is_short), 0)::BIGINT AS short_ns,
      sum(kept_ns)::BIGINT AS kept_ns,
      sum(most_kept_ns)::BIGINT AS most_kept_ns,
      -- Without what it waits for and shares with other ranks.
      period_ns - wait_ns - transfer_ns AS work_ns
    FROM segment
    GROUP BY run_id, rank, step
  ),
  counted AS (
    SELECT
      run_id,
      count(DISTINCT rank) AS ranks,
      sum(communication_ns) > 0 AS communicates,
      sum(wait_ns + transfer_ns) > 0 AS is_matched
    FROM summed
    GROUP BY run_id
  ),
  slowest AS (
    SELECT run_id, arg_max(rank, (work_ns, -rank)) AS slow_rank
    FROM (SELECT run_id, rank, sum(work_ns) AS work_ns FROM summed GROUP BY run_id, rank) AS of_rank
    GROUP BY run_id
  ),
  measured AS (
    SELECT
      run_id,
      rank,
      step,
      steps,
      period_ns,
      summed.work_ns,
      compute_ns,
      summed.transfer_ns,
      data_ns,
      sync_ns,
      host_ns,
      short_ns,
      kept_ns,
      most_kept_ns,
      slow_rank,
      coalesce(host.work_ns, 0) AS host_work_ns,
      coalesce(host.loading_ns, 0) AS loading_ns,
      coalesce(exposed.largest_ns, 0) AS largest_ns,
      -- Hidden behind computation already.
      greatest(coalesce(transferred.transfer_ns, 0) - summed.transfer_ns, 0) AS hidden_ns,
      summed.work_ns - quantile_disc(summed.work_ns, 0.5) OVER of_step AS more_work_ns,
      summed.period_ns - summed.wait_ns - quantile_disc(summed.period_ns - summed.wait_ns, 0.5) OVER of_step AS more_ns
    FROM summed
    JOIN counted USING (run_id)
    JOIN slowest USING (run_id)
    LEFT JOIN host_work AS host USING (run_id, rank, step)
    LEFT JOIN exposed USING (run_id, rank, step)
    LEFT JOIN transferred USING (run_id, rank, step)
    WINDOW of_step AS (PARTITION BY summed.run_id, summed.step)
    -- Only steps that all ranks have.
    QUALIFY count(*) OVER of_step = counted.ranks
  ),
  largest AS (
    SELECT run_id, kernel, bool_or(has_limits) AS has_limits
    FROM kernel_roofs
    GROUP BY run_id, kernel
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY sum(kernel_ns) DESC, kernel) <= $kernels
  ),
  fixed AS (
    -- What each fix takes off the work of a rank in a step: the estimate, at most, and at least.
    SELECT
      run_id,
      rank,
      step,
      steps,
      period_ns,
      work_ns,
      unnest([
        {fix: 'no waiting for data', saved_ns: data_ns, most_ns: data_ns + host_ns, least_ns: data_ns, floor_ns: host_work_ns},
        {fix: 'no blocking calls', saved_ns: sync_ns, most_ns: sync_ns + host_ns, least_ns: sync_ns, floor_ns: host_work_ns + loading_ns},
        {fix: 'CUDA graphs', saved_ns: short_ns - kept_ns, most_ns: short_ns + data_ns, least_ns: short_ns - most_kept_ns, floor_ns: loading_ns},
        {
          fix: 'perfect overlap',
          saved_ns: least(transfer_ns, greatest(compute_ns - hidden_ns, 0)),
          most_ns: least(transfer_ns, greatest(compute_ns - hidden_ns, 0)),
          least_ns: least(transfer_ns - largest_ns, greatest(compute_ns - hidden_ns, 0)),
          floor_ns: host_work_ns + loading_ns
        },
        {
          fix: 'slow rank at the median',
          saved_ns: CASE WHEN rank = slow_rank THEN greatest(more_work_ns, 0) ELSE 0 END,
          most_ns: CASE WHEN rank = slow_rank THEN greatest(more_work_ns, 0) ELSE 0 END,
          least_ns: CASE WHEN rank = slow_rank THEN greatest(least(more_work_ns, more_ns), 0) ELSE 0 END,
          floor_ns: CASE WHEN rank = slow_rank THEN 0 ELSE host_work_ns + loading_ns END
        }
      ], max_depth := 2)
    FROM measured
    UNION ALL
    SELECT
      measured.run_id,
      measured.rank,
      measured.step,
      measured.steps,
      measured.period_ns,
      measured.work_ns,
      largest.kernel || ' at its roof' AS fix,
      coalesce(roof.kernel_ns - roof.roof_ns, 0) AS saved_ns,
      saved_ns AS most_ns,
      coalesce(greatest(roof.kernel_ns - ceil(roof.roof_ns / $good_kernel)::BIGINT, 0), 0) AS least_ns,
      measured.host_work_ns + measured.loading_ns AS floor_ns
    FROM measured
    JOIN largest USING (run_id)
    LEFT JOIN kernel_roofs AS roof
      ON roof.run_id = measured.run_id
      AND roof.rank = measured.rank
      AND coalesce(roof.step, -1) = measured.step
      AND roof.kernel = largest.kernel
  ),
  timed AS (
    -- The rank with the most work sets the pace; after a fix that may be another one, or a host.
    SELECT
      run_id,
      fix,
      step,
      max(steps) AS steps,
      max(period_ns) AS step_ns,
      least(max(floor_ns), max(period_ns)) AS floor_ns,
      max(work_ns) - max(work_ns - saved_ns) AS saved_ns,
      max(work_ns) - max(work_ns - most_ns) AS most_ns,
      max(work_ns) - max(work_ns - least_ns) AS least_ns
    FROM fixed
    GROUP BY run_id, fix, step
  ),
  estimate AS (
    SELECT
      run_id,
      fix,
      CASE WHEN max(steps) > 0 THEN count(*) ELSE 0 END AS steps,
      -- The order statistics between which the median is with 95 %.
      greatest(floor((count(*) - 1.96 * sqrt(count(*))) / 2), 1)::BIGINT AS place,
      quantile_disc(step_ns, 0.5) AS step_ns,
      quantile_disc(greatest(step_ns - saved_ns, floor_ns), 0.5) AS after_ns,
      list_sort(list(step_ns - most_ns))[place] AS low_ns,
      list_reverse_sort(list(greatest(step_ns - least_ns, floor_ns)))[place] AS high_ns
    FROM timed
    GROUP BY run_id, fix
  ),
  limits AS (
    SELECT
      run_id,
      min(text) FILTER (state = 'not a basis') AS no_basis,
      min(text) FILTER (reason = 'ranks_missing') AS missing
    FROM rank_limits
    GROUP BY run_id
  ),
  launching AS (
    SELECT run_id, bool_or(coalesce(launches, FALSE)) AS launches
    FROM ranks
    GROUP BY run_id
  ),
  pipeline AS (
    SELECT DISTINCT run_id
    FROM collective_arrivals
    WHERE direction IS NOT NULL
  ),
  stated AS (
    -- Of each fix that could apply to a run, what is assumed, and why it cannot be estimated.
    SELECT
      counted.run_id,
      slowest.slow_rank,
      CASE WHEN NOT launching.launches THEN 'the calls that launched the GPU work were not recorded' END AS no_launches,
      CASE
        WHEN NOT counted.is_matched
          THEN coalesce(limits.missing, 'collectives are not matched with those of other ranks: waiting and transfer cannot be separated')
      END AS unmatched,
      unnest([
        {
          fix: 'no waiting for data',
          applies: TRUE,
          why_not: no_launches,
          assumption: 'Each batch is ready when the step needs it; all other work takes as long as now'
        },
        {
          fix: 'no blocking calls',
          applies: TRUE,
          why_not: no_launches,
          assumption: 'The host does not wait for the GPU within the step: results are read later, without blocking'
        },
        {
          fix: 'CUDA graphs',
          applies: TRUE,
          why_not: no_launches,
          assumption: 'Short gaps before a launch shrink to those between kernels of a graph (short_gap_ns, graph_gap_ns); longer ones, and waits for data, remain'
        },
        {
          fix: 'perfect overlap',
          applies: counted.communicates,
          why_not: unmatched,
          assumption: 'Computation hides all collectives once their last rank has arrived (high end: all but the longest one); waits for ranks remain'
        },
        {
          fix: 'slow rank at the median',
          applies: counted.communicates,
          why_not: coalesce(
            limits.missing,
            CASE WHEN counted.ranks = 1 THEN 'one rank is not compared with others' END,
            unmatched,
            CASE WHEN pipeline.run_id IS NOT NULL THEN 'the ranks of a pipeline do different work' END
          ),
          assumption: 'Rank ' || slowest.slow_rank || ' works as long as the median rank between collectives, which then wait for the next slowest one'
        }
      ], max_depth := 2)
    FROM counted
    JOIN slowest USING (run_id)
    LEFT JOIN launching USING (run_id)
    LEFT JOIN limits USING (run_id)
    LEFT JOIN pipeline USING (run_id)
    UNION ALL BY NAME
    SELECT
      largest.run_id,
      slowest.slow_rank,
      largest.kernel || ' at its roof' AS fix,
      TRUE AS applies,
      CASE WHEN NOT largest.has_limits THEN 'its FLOP and bytes, or the peak rates of the device, are not known' END AS why_not,
      'It reaches the peak rate or the memory bandwidth of the device (high end: ' || round(100 * $good_kernel)::BIGINT || ' % of it); the host does not get faster' AS assumption
    FROM largest
    JOIN slowest USING (run_id)
  ),
  answered AS (
    SELECT
      stated.run_id,
      stated.fix,
      stated.slow_rank,
      stated.assumption || coalesce('; ' || limits.missing, '') AS assumption,
      coalesce(
        limits.no_basis,
        CASE WHEN estimate.fix IS NULL THEN 'no step was recorded completely by all ranks' END,
        stated.why_not
      ) AS why_not,
      estimate.steps,
      estimate.step_ns,
      estimate.after_ns,
      estimate.low_ns,
      estimate.high_ns
    FROM stated
    LEFT JOIN estimate USING (run_id, fix)
    LEFT JOIN limits USING (run_id)
    WHERE stated.applies
  )
SELECT
  run_id,
  fix,
  CASE WHEN why_not IS NULL THEN slow_rank END AS rank,
  coalesce(steps, 0) AS steps,
  CASE WHEN why_not IS NULL THEN step_ns END AS step_ns,
  CASE WHEN why_not IS NULL THEN after_ns END AS after_ns,
  CASE WHEN why_not IS NULL THEN low_ns END AS low_ns,
  CASE WHEN why_not IS NULL THEN high_ns END AS high_ns,
  CASE WHEN why_not IS NULL THEN step_ns - after_ns END AS saving_ns,
  CASE WHEN why_not IS NULL THEN (step_ns - after_ns) / step_ns END AS saving_share,
  coalesce(why_not, assumption) AS assumption
FROM answered
WHERE why_not IS NOT NULL OR step_ns - after_ns >= $min_share * step_ns
