-- /// tw
-- kind     = "analysis"
-- name     = "module_siblings"
-- version  = 1
-- summary  = "Instances at one place of the module tree (the layers of a model), compared by GPU time, with outliers first."
-- requires = ["kernel_modules@1", "kernels@1", "modules@1"]
-- needs    = ["gpu", "modules"]
-- grain    = ["run_id", "rank", "module_path"]
-- per      = "window"
-- order    = ["run_id", "rank", "-is_outlier", "class_path", "-kernel_sum_ns", "module_path"]
--
-- [params]
-- min_instances = { type = "BIGINT", default = 5, min = 3, unit = "count", doc = "Minimum number of instances that are compared." }
-- min_z         = { type = "DOUBLE", default = 3.5, min = 0, doc = "Minimum absolute robust_z of an outlier." }
-- min_share     = { type = "DOUBLE", default = 0.1, min = 0, unit = "ratio", doc = "Minimum deviation of an outlier, as a share of the median." }
-- min_spread    = { type = "DOUBLE", default = 0.01, min = 0.000001, unit = "ratio", doc = "Minimum spread, as a share of the median: keeps robust_z finite where nearly all instances are equal." }
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- class_path    = { type = "VARCHAR", doc = "Classes from the outermost module down: the instances with the same are compared." }
-- module_path   = { type = "VARCHAR", doc = "The instance with the modules enclosing it." }
-- name          = { type = "VARCHAR", doc = "The instance, such as DecoderLayer_17." }
-- role          = { type = "BIGINT", unit = "id", null = true, doc = "Position of the instance among those of its class within the enclosing instance, such as 3 for the third Linear of an attention; null if all have one enclosing instance, or if too few have this role." }
-- instances     = { type = "BIGINT", unit = "count", doc = "Number of instances that are compared: of the class path and the role, or of the class path if role is null." }
-- calls         = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Calls of the instance." }
-- kernels       = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "GPU activities of the instance and its submodules, of all passes." }
-- kernel_sum_ns = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of their durations." }
-- median_ns     = { type = "BIGINT", unit = "ns", doc = "Median of kernel_sum_ns over the instances; of an even number the lower one." }
-- mad_ns        = { type = "BIGINT", unit = "ns", doc = "Median of the absolute deviations from it." }
-- robust_z      = { type = "DOUBLE", null = true, doc = "Deviation from the median in units of 1.4826 mad_ns, or of min_spread of the median if that is more; null if both are 0." }
-- is_outlier    = { type = "BOOLEAN", doc = "True if the deviation reaches min_z and min_share; always false where instances of different roles are compared, as few enclosing ones have them." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  instance AS (
    SELECT
      run_id,
      rank,
      class_path,
      module_path,
      min(name) AS name,
      count(*) AS calls,
      min(ts_ns) AS first_ns,
      array_to_string(string_split(module_path, ' > ')[:-2], ' > ') AS parent_path
    FROM modules
    GROUP BY run_id, rank, class_path, module_path
  ),
  placed AS (
    SELECT
      run_id,
      rank,
      class_path,
      module_path,
      name,
      calls,
      min(parent_path) OVER of_class <> max(parent_path) OVER of_class AS several,
      row_number() OVER (
        PARTITION BY run_id, rank, class_path, parent_path
        ORDER BY first_ns, module_path
      ) AS position
    FROM instance
    WINDOW of_class AS (PARTITION BY run_id, rank, class_path)
  ),
  grouped AS MATERIALIZED (
    SELECT
      run_id,
      rank,
      class_path,
      module_path,
      name,
      calls,
      CASE
        WHEN several AND count(*) OVER (PARTITION BY run_id, rank, class_path, position) >= $min_instances
          THEN position
      END AS role,
      several AND max(position) OVER (PARTITION BY run_id, rank, class_path) > 1 AS mixed
    FROM placed
  ),
  owned AS (
    SELECT
      owner.run_id,
      owner.rank,
      owner.module_path,
      count(*) AS kernels,
      sum(kernels.dur_ns)::BIGINT AS sum_ns
    FROM kernel_modules AS owner
    JOIN kernels
      ON kernels.run_id = owner.run_id AND kernels.rank = owner.rank AND kernels.event_id = owner.kernel_id
    WHERE owner.module_id IS NOT NULL
    GROUP BY owner.run_id, owner.rank, owner.module_path
  ),
  total AS (
    -- The sums of each path under every module enclosing it.
    SELECT run_id, rank, above.path AS module_path, sum(kernels)::BIGINT AS kernels, sum(sum_ns)::BIGINT AS sum_ns
    FROM (
      SELECT
        run_id,
        rank,
        kernels,
        sum_ns,
        string_split(module_path, ' > ') AS names,
        unnest(range(1, len(names) + 1)) AS depth,
        array_to_string(names[1:depth], ' > ') AS path
      FROM owned
    ) AS above
    GROUP BY run_id, rank, above.path
  ),
  compared AS (
    SELECT
      grouped.run_id,
      grouped.rank,
      grouped.class_path,
      grouped.module_path,
      grouped.name,
      grouped.role,
      grouped.mixed AND grouped.role IS NULL AS mixed,
      grouped.calls,
      count(*) OVER siblings AS instances,
      coalesce(total.kernels, 0) AS kernels,
      coalesce(total.sum_ns, 0) AS sum_ns,
      quantile_disc(coalesce(total.sum_ns, 0), 0.5) OVER siblings AS median_ns
    FROM grouped
    LEFT JOIN total USING (run_id, rank, module_path)
    WINDOW siblings AS (PARTITION BY grouped.run_id, grouped.rank, grouped.class_path, grouped.role)
  ),
  spread AS (
    SELECT
      run_id,
      rank,
      class_path,
      module_path,
      name,
      role,
      mixed,
      instances,
      calls,
      kernels,
      sum_ns,
      median_ns,
      quantile_disc(abs(sum_ns - median_ns), 0.5) OVER (PARTITION BY run_id, rank, class_path, role) AS mad_ns
    FROM compared
    WHERE instances >= $min_instances
  )
SELECT
  run_id,
  rank,
  class_path,
  module_path,
  name,
  role,
  instances,
  calls,
  kernels,
  sum_ns AS kernel_sum_ns,
  median_ns,
  mad_ns,
  (sum_ns - median_ns) / nullif(greatest(1.4826 * mad_ns, $min_spread * median_ns), 0) AS robust_z,
  coalesce(
    NOT mixed AND abs(robust_z) >= $min_z AND abs(sum_ns - median_ns) >= $min_share * median_ns,
    FALSE
  ) AS is_outlier
FROM spread
