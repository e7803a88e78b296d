-- /// tw
-- kind     = "analysis"
-- like     = "findings_base@1"
-- name     = "host_bound"
-- version  = 1
-- summary  = "Detects GPU idle time because the host launches late, most of it in long gaps in which it is busy with other work."
-- requires = ["analyzed_segments@1", "kernels@1", "runtime@1", "events@1", "ranks@1"]
-- needs    = ["gpu", "launches"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.3 }
-- short_gap_ns   = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Gaps up to this duration are short: the host was busy launching." }
--
-- [columns]
-- subject   = { doc = "Always: host." }
-- share     = { doc = "Idle time until pending work is launched, as a share of analyzed_ns: in long gaps, and in short ones as in `launch_bound`. Where short gaps have most of it, that rule has the finding." }
-- count     = { doc = "Number of such segments in long gaps." }
-- culprit   = { doc = "What the launching thread was in for at least half of the longest such gap: the innermost call, operator, annotation or Python function; null if nothing was recorded there." }
-- event_id  = { doc = "The GPU activity that ends the longest such gap." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  segment AS (
    SELECT
      run_id,
      rank,
      start_ns,
      segment_ns,
      after_id,
      step,
      steps,
      analyzed_ns,
      cause = 'host' AND gap_ns > $short_gap_ns AS matches,
      cause IN ('host', 'call', 'latency') AND gap_ns <= $short_gap_ns AS is_short
    FROM analyzed_segments
  ),
  per_rank AS (
    SELECT
      run_id,
      rank,
      any_value(steps) AS steps,
      any_value(analyzed_ns) AS analyzed_ns,
      count(*) FILTER (matches) AS count,
      coalesce(sum(segment_ns) FILTER (matches), 0)::BIGINT AS long_ns,
      coalesce(sum(segment_ns) FILTER (is_short), 0)::BIGINT AS short_ns,
      long_ns + short_ns AS saving_ns,
      saving_ns / any_value(analyzed_ns) AS share,
      arg_max(after_id, (segment_ns, -start_ns)) FILTER (matches) AS event_id,
      arg_max(start_ns, (segment_ns, -start_ns)) FILTER (matches) AS from_ns,
      arg_max(step, (segment_ns, -start_ns)) FILTER (matches) AS step,
      from_ns + max(segment_ns) FILTER (matches) AS to_ns
    FROM segment
    GROUP BY run_id, rank
  ),
  worst AS (
    SELECT
      per_rank.run_id,
      per_rank.rank,
      per_rank.from_ns,
      per_rank.to_ns,
      coalesce(kernels.short_name, kernels.name, 'an activity without a name')[:80] AS next_name,
      runtime.pid,
      runtime.tid
    FROM per_rank
    JOIN kernels USING (run_id, rank, event_id)
    JOIN runtime ON runtime.run_id = kernels.run_id AND runtime.rank = kernels.rank AND runtime.event_id = kernels.runtime_id
  ),
  host_slice AS (
    -- What the launching thread was in for at least half of the longest gap.
    SELECT
      worst.run_id,
      worst.rank,
      slice.category,
      regexp_replace(slice.name, ' at 0x[0-9a-fA-F]+', '') AS name,
      slice.dur_ns,
      slice.pre
    FROM worst
    JOIN events AS slice
      ON slice.run_id = worst.run_id
      AND slice.rank = worst.rank
      AND slice.pid = worst.pid
      AND slice.tid = worst.tid
      AND slice.ts_ns < worst.to_ns
      AND slice.ts_ns + slice.dur_ns > worst.from_ns
    WHERE
      slice.pre IS NOT NULL
      AND NOT starts_with(slice.name, 'ProfilerStep')
      AND NOT contains(slice.name, ' step_num=')
      AND 2 * (least(slice.ts_ns + slice.dur_ns, worst.to_ns) - greatest(slice.ts_ns, worst.from_ns)) >= worst.to_ns - worst.from_ns
  ),
  host AS (
    SELECT
      run_id,
      rank,
      -- Annotations are outside of operators, calls and frames.
      arg_max(name, (category <> 'user_annotation', pre)) AS name,
      arg_max(category, (category <> 'user_annotation', pre)) AS category,
      arg_max(dur_ns, (category <> 'user_annotation', pre)) AS dur_ns,
      arg_max(name, pre) FILTER (category = 'cpu_op') AS op_name,
      arg_max(name, pre) FILTER (category = 'user_annotation') AS annotation
    FROM host_slice
    GROUP BY run_id, rank
  )
SELECT
  per_rank.run_id,
  per_rank.rank,
  'host' AS subject,
  share >= $warning_share AND long_ns >= short_ns AS is_finding,
  share,
  count,
  per_rank.steps,
  analyzed_ns,
  saving_ns,
  'the idle time in these gaps, without waits for data, blocking calls and first calls' AS saving_limit,
  CASE WHEN ranks.stacks THEN 1 ELSE 0 END AS doubt,
  'The GPU idles {lost}, because the host launches late' || format(': {:.0f} % of it in gaps longer than {:g} µs', 100 * long_ns / saving_ns, $short_gap_ns / 1000) || '. The longest gap, {worst}{where}, is before '
  || coalesce(worst.next_name, 'an activity') || ': '
  || CASE
    WHEN host.name IS NULL THEN 'nothing that was recorded on the launching thread covers half of it.'
    ELSE
      'the launching thread was in ' || host.name || ' ({detail})'
      || CASE WHEN host.op_name <> host.name THEN ' under ' || host.op_name ELSE '' END
      || CASE WHEN host.annotation <> host.name THEN ', in ' || host.annotation ELSE '' END
      || '.'
  END AS observation,
  CASE
    WHEN host.category IN ('cuda_runtime', 'cuda_driver') AND regexp_matches(host.name, '(?i)launch') THEN
      'A launch that takes this long loads or compiles the kernel, or waits for a full queue: run warm-up iterations before recording (and before serving), or load modules early (CUDA_MODULE_LOADING=EAGER).'
    WHEN host.category IN ('cuda_runtime', 'cuda_driver') AND regexp_matches(host.name, '(?i)memcpy') THEN
      'The copy blocks the host: copy from and to pinned memory with non_blocking=True, and read the result later.'
    WHEN host.category IN ('cuda_runtime', 'cuda_driver') THEN
      'Move this call out of the loop, or run warm-up iterations before recording if it happens once.'
    WHEN host.name IS NULL THEN
      'Record with with_stack=True to see the Python code, and check whether the thread was scheduled (CPU load, number of cores, other processes).'
    ELSE 'Move this work out of the loop, out of the launching thread, or out of the step.'
  END AS advice,
  'idle_intervals' AS evidence,
  'cause = ''host''' AS evidence_filter,
  event_id,
  per_rank.from_ns,
  per_rank.to_ns,
  step,
  host.name AS culprit,
  host.dur_ns AS detail_ns
FROM per_rank
LEFT JOIN worst USING (run_id, rank)
LEFT JOIN host USING (run_id, rank)
JOIN ranks USING (run_id, rank)
