-- /// tw
-- summary  = "Time of names over runs, by period, label, model and GPU; an analysis gives the time of each name in each run."
-- requires = ["runs@1"]
-- grain    = ["day", "label", "model", "gpu", "name"]
-- order    = ["-day", "label", "model", "gpu", "-sum_ns", "name"]
--
-- [params]
-- period    = { type = "VARCHAR", default = "day", choices = ["day", "week", "month"], doc = "What a row covers." }
-- label_key = { type = "VARCHAR", doc = "Split rows by the values of this label." }
--
-- [columns]
-- day         = { type = "VARCHAR", null = true, doc = "First day of the period in which the runs started, YYYY-MM-DD in UTC; null if their start is unknown." }
-- label       = { type = "VARCHAR", null = true, doc = "Value of the label label_key; null without it." }
-- model       = { type = "VARCHAR", null = true, doc = "Value of the label `model`; null without it." }
-- gpu         = { type = "VARCHAR", null = true, doc = "GPU models of the run; null if unknown." }
-- name        = { type = "VARCHAR", null = true, doc = "The name." }
-- runs        = { type = "BIGINT", unit = "count", doc = "Number of runs with this name." }
-- count       = { type = "BIGINT", unit = "count", aggregate = "sum", better = "lower", doc = "Number of occurrences in the recordings of these runs." }
-- sum_ns      = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Total time in these recordings." }
-- share       = { type = "DOUBLE", unit = "ratio", null = true, better = "lower", doc = "sum_ns as a share of the GPU time of all runs of the group; null if that is 0." }
-- worst_run   = { type = "VARCHAR", doc = "The run with the largest share." }
-- worst_share = { type = "DOUBLE", unit = "ratio", null = true, better = "lower", doc = "Share of that run." }
-- ///
-- An analysis returns, for each name in each run, run_id, name, count, sum_ns and whole_ns, the time of the run that
-- shares refer to.
SELECT
  day,
  label,
  model,
  gpu,
  name,
  count(*) AS runs,
  sum(count)::BIGINT AS count,
  sum(sum_ns)::BIGINT AS sum_ns,
  sum(sum_ns) / nullif(any_value(group_ns), 0) AS share,
  arg_max(run_id, (coalesce(share_of_run, 0), run_id)) AS worst_run,
  max(share_of_run) AS worst_share
FROM (
  SELECT
    grouped.run_id,
    grouped.day,
    grouped.label,
    grouped.model,
    grouped.gpu,
    input.name,
    input.count,
    input.sum_ns,
    input.sum_ns / nullif(input.whole_ns, 0) AS share_of_run,
    sum(input.whole_ns) FILTER (input.is_first) OVER (PARTITION BY day, label, model, gpu) AS group_ns
  FROM (
    SELECT
      run_id,
      name,
      count,
      sum_ns,
      whole_ns,
      row_number() OVER (PARTITION BY run_id ORDER BY name) = 1 AS is_first
    FROM base_input
  ) AS input
  JOIN (
    SELECT
      run_id,
      strftime(date_trunc($period, make_timestamp(start_ns // 1000)), '%Y-%m-%d') AS day,
      labels[$label_key] AS label,
      labels['model'] AS model,
      nullif(array_to_string(device_names, ', '), '') AS gpu
    FROM runs
  ) AS grouped USING (run_id)
) AS part
GROUP BY day, label, model, gpu, name
