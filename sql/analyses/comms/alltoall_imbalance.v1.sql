-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "alltoall_imbalance"
-- version  = 1
-- summary  = "How unevenly each all-to-all is spread over its ranks (MoE routing): largest and mean input and output."
-- requires = ["collective_arrivals@1", "collectives@1"]
-- needs    = ["collectives", "message_sizes", "ranks>=2"]
-- grain    = ["run_id", "instance_id"]
-- order    = ["run_id", "-in_imbalance", "instance_id"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- instance_id    = { type = "VARCHAR", doc = "Key of the all-to-all, equal on all its ranks; only those in which all ranks of the group take part." }
-- group_key      = { type = "VARCHAR", doc = "Process group, as in `collective_groups`; `all ranks` if all ranks are assumed." }
-- step           = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step, on the lowest rank." }
-- members        = { type = "BIGINT", unit = "count", doc = "Number of ranks." }
-- in_max_bytes   = { type = "BIGINT", unit = "bytes", null = true, better = "lower", doc = "Largest input of a rank; null, like the next columns, if the input of a rank is unknown." }
-- in_mean_bytes  = { type = "DOUBLE", unit = "bytes", null = true, doc = "Mean input of a rank." }
-- in_imbalance   = { type = "DOUBLE", unit = "ratio", null = true, better = "lower", doc = "in_max_bytes / in_mean_bytes: 1 if all ranks send the same amount." }
-- in_max_rank    = { type = "INTEGER", null = true, doc = "The rank with the largest input; the lowest on ties." }
-- out_max_bytes  = { type = "BIGINT", unit = "bytes", null = true, better = "lower", doc = "Largest output of a rank; null, like the next columns, if the output of a rank is unknown." }
-- out_mean_bytes = { type = "DOUBLE", unit = "bytes", null = true, doc = "Mean output of a rank." }
-- out_imbalance  = { type = "DOUBLE", unit = "ratio", null = true, better = "lower", doc = "out_max_bytes / out_mean_bytes: 1 if all ranks receive the same amount." }
-- out_max_rank   = { type = "INTEGER", null = true, doc = "The rank with the largest output; the lowest on ties." }
-- wait_ns        = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Longest wait of any rank for the last one." }
-- transfer_ns    = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Shortest duration of any rank." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  member AS (
    SELECT
      arrival.run_id,
      arrival.rank,
      arrival.instance_id,
      arrival.members,
      arrival.wait_ns,
      arrival.transfer_ns,
      coalesce(arrival.group_key, 'all ranks') AS group_key,
      collectives.step,
      collectives.bytes // nullif(greatest(collectives.in_elements, collectives.out_elements), 0) AS element_bytes,
      collectives.in_elements * element_bytes AS in_bytes,
      collectives.out_elements * element_bytes AS out_bytes
    FROM collective_arrivals AS arrival
    JOIN collectives USING (run_id, rank, event_id)
    WHERE arrival.state = 'complete' AND arrival.instance_id IS NOT NULL AND arrival.collective = 'all_to_all'
  ),
  instance AS (
    SELECT
      run_id,
      instance_id,
      min(group_key) AS group_key,
      arg_min_null(step, rank) AS step,
      max(members) AS members,
      count(in_bytes) = count(*) AS in_known,
      count(out_bytes) = count(*) AS out_known,
      max(in_bytes) AS in_max_bytes,
      sum(in_bytes)::BIGINT / count(in_bytes) AS in_mean_bytes,
      arg_max(rank, (in_bytes, -rank)) AS in_max_rank,
      max(out_bytes) AS out_max_bytes,
      sum(out_bytes)::BIGINT / count(out_bytes) AS out_mean_bytes,
      arg_max(rank, (out_bytes, -rank)) AS out_max_rank,
      max(wait_ns) AS wait_ns,
      max(transfer_ns) AS transfer_ns
    FROM member
    GROUP BY run_id, instance_id
  )
SELECT
  run_id,
  instance_id,
  group_key,
  step,
  members,
  CASE WHEN in_known THEN in_max_bytes END AS in_max_bytes,
  CASE WHEN in_known THEN in_mean_bytes END AS in_mean_bytes,
  CASE WHEN in_known THEN in_max_bytes / nullif(in_mean_bytes, 0) END AS in_imbalance,
  CASE WHEN in_known THEN in_max_rank END AS in_max_rank,
  CASE WHEN out_known THEN out_max_bytes END AS out_max_bytes,
  CASE WHEN out_known THEN out_mean_bytes END AS out_mean_bytes,
  CASE WHEN out_known THEN out_max_bytes / nullif(out_mean_bytes, 0) END AS out_imbalance,
  CASE WHEN out_known THEN out_max_rank END AS out_max_rank,
  wait_ns,
  transfer_ns
FROM instance
