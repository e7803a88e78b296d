-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "long_collectives"
-- version  = 1
-- summary  = "Collectives that took far longer than usual, with what else the traces show at that time, as hypotheses about the cause."
-- requires = ["collective_instances@1", "collective_arrivals@1", "collectives@1", "memory_copies@1", "memory_changes@1", "ranks@1"]
-- needs    = ["collectives", "ranks>=2"]
-- grain    = ["run_id", "instance_id"]
-- order    = ["run_id", "-excess_ns", "instance_id"]
--
-- [params]
-- min_count     = { type = "BIGINT", default = 5, unit = "count", min = 1, doc = "Minimum number of collectives at the same position of the step; with fewer there is no usual duration." }
-- factor        = { type = "DOUBLE", default = 2.0, min = 1, doc = "Only collectives that take longer than this many times the usual duration." }
-- min_excess_ns = { type = "BIGINT", default = 100000, unit = "ns", min = 0, doc = "Only collectives that exceed the usual duration by at least this much." }
-- near_full     = { type = "DOUBLE", default = 0.9, unit = "ratio", min = 0, doc = "Lowest share at which memory counts as nearly full." }
-- larger        = { type = "DOUBLE", default = 1.1, min = 1, doc = "Multiple of the usual size above which a message counts as larger." }
-- part          = { type = "DOUBLE", default = 0.5, unit = "ratio", min = 0, doc = "Lowest share of the excess at which waiting or concurrent traffic counts as a possible cause." }
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- instance_id        = { type = "VARCHAR", doc = "Key of the collective instance, equal on all its ranks; only those in which all ranks of the group take part." }
-- group_key          = { type = "VARCHAR", doc = "Process group, as in `collective_groups`; `all ranks` if all ranks are assumed." }
-- collective         = { type = "VARCHAR", doc = "all_reduce, all_gather, …." }
-- step               = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step." }
-- position           = { type = "BIGINT", unit = "count", doc = "Its position among the group's collectives of this kind in the step, starting at 1." }
-- dur_ns             = { type = "BIGINT", unit = "ns", better = "lower", doc = "Longest duration on any rank." }
-- usual_ns           = { type = "BIGINT", unit = "ns", doc = "Median of dur_ns at the same position over all steps; outside of steps, of the same message size." }
-- excess_ns          = { type = "BIGINT", unit = "ns", better = "lower", doc = "dur_ns minus usual_ns." }
-- excess_wait_ns     = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "Longest wait of any rank minus its usual value; null if a rank may leave before the last one arrives." }
-- excess_transfer_ns = { type = "BIGINT", unit = "ns", null = true, signed = true, doc = "Transfer time minus its usual value." }
-- last_rank          = { type = "INTEGER", null = true, doc = "The rank that arrived last." }
-- size_ratio         = { type = "DOUBLE", unit = "ratio", null = true, doc = "Message size as a multiple of the usual one." }
-- concurrent_ns      = { type = "BIGINT", unit = "ns", doc = "Time of other collectives and copies that ran on a rank meanwhile; the largest sum of any rank." }
-- memory_share       = { type = "DOUBLE", unit = "ratio", null = true, doc = "Most memory allocated on a participating GPU in the same step, as a share of its memory; null if not recorded." }
-- hypotheses         = { type = "VARCHAR", doc = "What may explain the excess, as far as these columns show it. Hypotheses, not findings: things that happen at the same time need not be the cause." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  numbered AS (
    SELECT
      run_id,
      instance_id,
      group_key,
      collective,
      step,
      dur_ns,
      message_bytes,
      wait_ns,
      last_rank,
      transfer_ns,
      row_number() OVER (PARTITION BY run_id, group_key, collective, step ORDER BY start_ns, instance_id) AS position
    FROM collective_instances
  ),
  compared AS (
    SELECT
      run_id,
      instance_id,
      group_key,
      collective,
      step,
      dur_ns,
      message_bytes,
      wait_ns,
      last_rank,
      transfer_ns,
      position,
      count(*) OVER alike AS peers,
      quantile_disc(dur_ns, 0.5) OVER alike AS usual_ns,
      quantile_disc(wait_ns, 0.5) OVER alike AS usual_wait_ns,
      quantile_disc(transfer_ns, 0.5) OVER alike AS usual_transfer_ns,
      quantile_disc(message_bytes, 0.5) OVER alike AS usual_bytes
    FROM numbered
    WINDOW alike AS (
      PARTITION BY run_id, group_key, collective, step IS NULL, CASE WHEN step IS NULL THEN message_bytes ELSE position END
    )
  ),
  outlier AS MATERIALIZED (
    SELECT
      run_id,
      instance_id,
      group_key,
      collective,
      step,
      position,
      dur_ns,
      usual_ns,
      dur_ns - usual_ns AS excess_ns,
      wait_ns - usual_wait_ns AS excess_wait_ns,
      transfer_ns - usual_transfer_ns AS excess_transfer_ns,
      last_rank,
      message_bytes / nullif(usual_bytes, 0) AS size_ratio
    FROM compared
    WHERE peers >= $min_count AND dur_ns > $factor * usual_ns AND dur_ns - usual_ns >= $min_excess_ns
  ),
  member AS MATERIALIZED (
    SELECT
      outlier.run_id,
      outlier.instance_id,
      outlier.step,
      arrival.rank,
      arrival.event_id,
      arrival.device,
      arrival.start_ns + coalesce(arrival.wait_ns, 0) AS start_ns,
      arrival.start_ns + arrival.dur_ns AS end_ns
    FROM outlier
    JOIN collective_arrivals AS arrival USING (run_id, instance_id)
  ),
  traffic AS (
    SELECT run_id, rank, event_id, start_ns, end_ns
    FROM collectives
    UNION ALL
    SELECT run_id, rank, event_id, ts_ns, ts_ns + dur_ns
    FROM memory_copies
  ),
  concurrent AS (
    SELECT
      member.run_id,
      member.instance_id,
      member.rank,
      sum(least(traffic.end_ns, member.end_ns) - greatest(traffic.start_ns, member.start_ns))::BIGINT AS concurrent_ns
    FROM member
    JOIN traffic
      ON traffic.run_id = member.run_id
      AND traffic.rank = member.rank
      AND traffic.event_id <> member.event_id
      AND traffic.start_ns < member.end_ns
      AND traffic.end_ns > member.start_ns
    GROUP BY member.run_id, member.instance_id, member.rank
  ),
  busiest AS (
    SELECT run_id, instance_id, max(concurrent_ns) AS concurrent_ns
    FROM concurrent
    GROUP BY run_id, instance_id
  ),
  device AS (
    SELECT run_id, rank, unnest(header -> '$.deviceProperties[*]') AS properties
    FROM ranks
  ),
  capacity AS (
    SELECT
      run_id,
      rank,
      TRY_CAST(properties ->> '$.id' AS BIGINT) AS device,
      TRY_CAST(properties ->> '$.totalGlobalMem' AS BIGINT) AS memory_bytes
    FROM device
  ),
  allocated AS (
    SELECT run_id, rank, device, step, max(allocated_bytes) AS allocated_bytes
    FROM memory_changes
    WHERE device_type <> 0 AND step IS NOT NULL
    GROUP BY run_id, rank, device, step
  ),
  memory AS (
    SELECT
      member.run_id,
      member.instance_id,
      max(allocated.allocated_bytes / nullif(capacity.memory_bytes, 0)) AS memory_share
    FROM member
    JOIN allocated USING (run_id, rank, device, step)
    JOIN capacity USING (run_id, rank, device)
    GROUP BY member.run_id, member.instance_id
  ),
  evidence AS (
    SELECT
      outlier.run_id,
      outlier.instance_id,
      outlier.group_key,
      outlier.collective,
      outlier.step,
      outlier.position,
      outlier.dur_ns,
      outlier.usual_ns,
      outlier.excess_ns,
      outlier.excess_wait_ns,
      outlier.excess_transfer_ns,
      outlier.last_rank,
      outlier.size_ratio,
      coalesce(busiest.concurrent_ns, 0) AS concurrent_ns,
      memory.memory_share,
      list_filter(
        [
          CASE WHEN outlier.excess_wait_ns >= $part * outlier.excess_ns THEN format('rank {} was late', outlier.last_rank) END,
          CASE WHEN outlier.size_ratio > $larger THEN 'the message was larger than usual' END,
          CASE
            WHEN coalesce(busiest.concurrent_ns, 0) >= $part * outlier.excess_ns
              THEN 'other collectives or copies used the links meanwhile'
          END,
          CASE
            WHEN memory.memory_share >= $near_full
              THEN 'GPU memory was nearly full in this step, which can shrink communication buffers'
          END
        ],
        LAMBDA hypothesis: hypothesis IS NOT NULL
      ) AS hypotheses
    FROM outlier
    LEFT JOIN busiest USING (run_id, instance_id)
    LEFT JOIN memory USING (run_id, instance_id)
  )
SELECT
  run_id,
  instance_id,
  group_key,
  collective,
  step,
  position,
  dur_ns,
  usual_ns,
  excess_ns,
  excess_wait_ns,
  excess_transfer_ns,
  last_rank,
  size_ratio,
  concurrent_ns,
  memory_share,
  concat_ws(
    '; ',
    CASE
      WHEN len(hypotheses) > 0 THEN 'possible causes: ' || array_to_string(hypotheses, ', ')
      ELSE 'no other evidence in the traces: check links, network and other jobs'
    END,
    CASE
      WHEN memory_share IS NULL THEN 'memory use was not recorded (profile_memory=True or a memory snapshot shows it)'
    END
  ) AS hypotheses
FROM evidence
