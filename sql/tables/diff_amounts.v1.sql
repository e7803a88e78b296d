-- /// tw
-- kind      = "table"
-- name      = "diff_amounts"
-- version   = 1
-- summary   = "Time of each interval that a comparison breaks down, split in seven ways that each sum to the interval."
-- requires  = ["diff_segments@1", "diff_kernels@1"]
-- transient = true
-- grain     = ["run_id", "rank", "side", "interval_id", "level", "name"]
-- order     = ["run_id", "rank", "side", "interval_id", "level", "name"]
--
-- [columns]
-- run_id       = { type = "VARCHAR", doc = "The run." }
-- rank         = { type = "INTEGER", doc = "The rank." }
-- side         = { type = "VARCHAR", doc = "base or head." }
-- interval_id  = { type = "BIGINT", unit = "id", doc = "Step number, or number of the occurrence of the window or annotation." }
-- level        = { type = "VARCHAR", doc = "breakdown (GPU activity and idle cause), kernels, operators, categories (training phase and kernel kind), modules, work (family of operators) or ranks." }
-- name         = { type = "VARCHAR", doc = "The row of the level. Idle causes are rows of every level but ranks." }
-- exclusive_ns = { type = "BIGINT", unit = "ns", doc = "Time of the interval in this row." }
-- count        = { type = "BIGINT", unit = "count", null = true, doc = "Number of activities; null if the row does not consist of activities." }
-- sum_ns       = { type = "BIGINT", unit = "ns", null = true, doc = "Sum of their full durations; null if the row does not consist of activities." }
-- work         = { type = "DECIMAL(38,0)", null = true, doc = "FLOP or bytes of the row; null unless known of all of it in one unit, and of other levels than kernels, operators and work." }
-- work_unit    = { type = "VARCHAR", null = true, doc = "flop or bytes; null without work." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  amount AS (
    SELECT
      run_id,
      rank,
      side,
      interval_id,
      unnest(CASE WHEN starts_with(category, 'idle_') OR contains(category, ': ') THEN ['breakdown', 'kernels', 'operators', 'categories', 'modules', 'work'] ELSE ['breakdown'] END) AS level,
      -- Time of the host is named, such as operator: aten::mm.
      CASE
        WHEN waits_for IS NOT NULL THEN format('{} for rank {}', category, waits_for)
        WHEN level IN ('breakdown', 'categories') THEN split_part(category, ': ', 1)
        ELSE category
      END AS name,
      category_ns AS exclusive_ns,
      NULL::BIGINT AS count,
      NULL::BIGINT AS sum_ns,
      NULL::DECIMAL(38, 0) AS work,
      NULL AS work_unit
    FROM diff_segments
    UNION ALL
    SELECT
      run_id,
      rank,
      side,
      interval_id,
      'ranks',
      format('rank {} {}', rank_label, CASE WHEN category IN ('exposed_wait', 'exposed_transfer', 'exposed_unassigned') THEN category WHEN starts_with(category, 'waiting: ') THEN 'waiting' ELSE '(own work)' END),
      category_ns,
      NULL,
      NULL,
      NULL,
      NULL
    FROM diff_segments
    UNION ALL
    SELECT run_id, rank, side, interval_id, 'kernels', coalesce(label, '(no name)'), exclusive_ns, count, sum_ns, work, work_unit
    FROM diff_kernels
    UNION ALL
    SELECT
      run_id,
      rank,
      side,
      interval_id,
      'operators',
      coalesce(op, '(no operator)') || CASE WHEN is_graph THEN ' (graph launch)' ELSE '' END,
      exclusive_ns,
      count,
      sum_ns,
      work,
      work_unit
    FROM diff_kernels
    UNION ALL
    SELECT run_id, rank, side, interval_id, 'categories', pass || ' ' || kind, exclusive_ns, count, sum_ns, NULL, NULL
    FROM diff_kernels
    UNION ALL
    SELECT run_id, rank, side, interval_id, 'modules', module_path, exclusive_ns, count, sum_ns, NULL, NULL
    FROM diff_kernels
    UNION ALL
    SELECT
      run_id,
      rank,
      side,
      interval_id,
      'work',
      CASE
        WHEN family IS NULL THEN kind || CASE WHEN kind = 'computation' THEN ' (no rule)' ELSE '' END
        ELSE format('{} ({})', family, coalesce(work_unit, 'work not known'))
      END,
      exclusive_ns,
      count,
      sum_ns,
      work,
      work_unit
    FROM diff_kernels
  )
SELECT
  run_id,
  rank,
  side,
  interval_id,
  level,
  name,
  sum(exclusive_ns)::BIGINT AS exclusive_ns,
  sum(count)::BIGINT AS count,
  sum(sum_ns)::BIGINT AS sum_ns,
  CASE WHEN count(work_unit) = count(*) AND min(work_unit) = max(work_unit) THEN sum(work)::DECIMAL(38, 0) END AS work,
  CASE WHEN count(work_unit) = count(*) AND min(work_unit) = max(work_unit) THEN min(work_unit) END AS work_unit
FROM amount
GROUP BY run_id, rank, side, interval_id, level, name
