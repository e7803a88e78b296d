-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- scope    = "run"
-- name     = "slow_network"
-- version  = 1
-- summary  = "Detects process groups whose transfers take longer than those of comparable groups: a slow link, not a slow rank."
-- requires = ["collective_arrivals@1", "collective_instances@1", "analyzed_intervals@1"]
-- needs    = ["collectives", "message_sizes", "ranks>=2"]
-- excluded_by = ["lost_records", "mixed_attempts", "no_work"]
-- limited_by = ["lost_events", "several_processes", "ranks_missing", "late_start"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.05 }
-- critical_share = { default = 0.2 }
-- min_groups     = { type = "BIGINT", default = 3, unit = "count", min = 1, doc = "Minimum number of other groups that a group is compared with." }
-- factor         = { type = "DOUBLE", default = 1.5, min = 1, doc = "Transfers of a slow group take longer than this many times the median of the others." }
--
-- [columns]
-- subject   = { doc = "Always: collectives. Groups are compared at the same collective, element type, message size, and number of ranks and hosts, so only where message sizes are recorded." }
-- share     = { doc = "Transfer time of this rank in slow groups beyond the median of the other groups, as a share of analyzed_ns." }
-- count     = { doc = "Number of collectives in slow groups that took longer than that median." }
-- saving_ns = { doc = "Upper bound on the time saved in the analyzed interval: the transfer time beyond the median of the other groups." }
-- event_id  = { doc = "The collective that exceeds this median most." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  sized AS (
    SELECT
      run_id,
      instance_id,
      group_key,
      concat_ws(' ', collective, dtype, message_bytes, members, len(hosts)) AS kind,
      transfer_ns
    FROM collective_instances
    WHERE transfer_ns IS NOT NULL AND message_bytes IS NOT NULL
  ),
  grouped AS (
    SELECT run_id, kind, group_key, quantile_disc(transfer_ns, 0.5) AS transfer_ns
    FROM sized
    GROUP BY run_id, kind, group_key
  ),
  compared AS (
    SELECT
      own.run_id,
      own.kind,
      own.group_key,
      own.transfer_ns,
      count(*) AS others,
      quantile_disc(other.transfer_ns, 0.5) AS usual_ns
    FROM grouped AS own
    JOIN grouped AS other
      ON other.run_id = own.run_id AND other.kind = own.kind AND other.group_key <> own.group_key
    GROUP BY own.run_id, own.kind, own.group_key, own.transfer_ns
  ),
  slow AS (
    SELECT run_id, kind, group_key, usual_ns
    FROM compared
    WHERE others >= $min_groups AND transfer_ns > $factor * usual_ns
  )
SELECT
  arrival.run_id,
  arrival.rank,
  span.steps,
  span.analyzed_ns,
  coalesce(sized.transfer_ns > slow.usual_ns, FALSE) AS matches,
  NULL::VARCHAR AS label,
  sized.transfer_ns - slow.usual_ns AS lost_ns,
  arrival.event_id,
  NULL::BIGINT AS step,
  arrival.start_ns AS from_ns,
  arrival.start_ns + arrival.dur_ns AS to_ns,
  {
    subject: 'collectives',
    saving_limit: 'the transfer time beyond that of comparable groups; less where it is overlapped with computation',
    observation: 'Collectives of this rank take longer than equal ones in other process groups, even after the last rank arrived: the links between the ranks of its group are slow.',
    advice: 'Compare relative_busbw of the groups in collective_bandwidth, and pairs of hosts in slow_links; check cables, network cards, switches, and which other jobs use these links.',
    evidence: 'collective_bandwidth',
    evidence_filter: 'relative_busbw < 1',
    only_largest: FALSE,
    is_context: FALSE
  } AS words
FROM collective_arrivals AS arrival
JOIN sized USING (run_id, instance_id)
JOIN analyzed_intervals AS span USING (run_id, rank)
LEFT JOIN slow
  ON slow.run_id = sized.run_id AND slow.kind = sized.kind AND slow.group_key = sized.group_key
WHERE arrival.start_ns >= span.start_ns AND arrival.start_ns < span.end_ns
