-- /// tw
-- kind    = "format"
-- name    = "nccl_torch"
-- version = 1
-- summary = "NCCL's profiler plug-in and torch: the collectives of a communicator beside the trace of their process."
--
-- [tables.torch]
-- optional = [
--   "category VARCHAR", "name VARCHAR", "ts_ns", "dur_ns", "device", "stream", "correlation", "collective VARCHAR",
--   "process_group VARCHAR", "collective_dtype VARCHAR", "in_elements", "out_elements",
-- ]
--
-- [tables.recording]
-- optional = [
--   "category VARCHAR", "name VARCHAR", "ts_ns", "dur_ns", "correlation", "collective VARCHAR", "process_group VARCHAR",
--   "collective_sequence", "collective_dtype VARCHAR", "in_elements", "args VARCHAR",
-- ]
--
-- [changes]
-- 1 = "First version."
-- ///
-- Kernels are those of torch. What the plug-in recorded in the time of its trace is added on its clock, with the
-- correlation ID of the kernel that ran the collective.
WITH messages AS MATERIALIZED (
  SELECT
    *, ts_ns + dur_ns AS end_ns,
    -- Kernels of some libraries are not named after what they do. Several collectives consist of sends and receives.
    regexp_extract(
      lower(concat(regexp_extract(name, '^nccl\w*Kernel_([A-Z]\w+)', 1), ' ', replace(collective, '_', ''))),
      '(allreduce|allgather|reducescatter|broadcast|reduce|send|recv|alltoall|gather|scatter)', 1
    ) AS word,
    if(word IN ('send', 'recv', 'alltoall', 'gather', 'scatter'), 'send', word) AS operation,
    CASE
      WHEN regexp_matches(collective_dtype, '(?i)double|long|64$') THEN 8
      WHEN regexp_matches(collective_dtype, '(?i)half|short|16$') THEN 2
      WHEN regexp_matches(collective_dtype, '(?i)char|byte|bool|float8|8$') THEN 1
      ELSE 4
    END AS element_bytes,
    coalesce(process_group, '') || ' ' || stream AS lane
  FROM (
    SELECT
      TRUE AS is_torch, file_row, name, ts_ns, dur_ns, correlation, collective, process_group, stream, NULL::BIGINT AS sequence,
      collective_dtype, in_elements, out_elements
    FROM torch WHERE category = 'kernel' AND (collective IS NOT NULL OR starts_with(name, 'nccl'))
    UNION ALL
    SELECT
      FALSE, file_row, name, ts_ns, dur_ns, correlation, collective, process_group, 0, collective_sequence,
      collective_dtype, in_elements, in_elements
    FROM recording WHERE category = 'kernel'
  )
  WHERE word <> '' AND dur_ns IS NOT NULL
),
ours AS (
  SELECT *, row_number() OVER (PARTITION BY lane, operation ORDER BY ts_ns, file_row) AS number, min(ts_ns) OVER () AS begin_ns, max(end_ns) OVER () AS last_ns
  FROM messages WHERE is_torch
),
theirs AS (FROM messages WHERE NOT is_torch),
distances AS (  -- of up to 60 of each operation in the trace from all that may be the same
  SELECT ours.ts_ns - theirs.ts_ns AS distance_ns
  FROM (FROM ours QUALIFY (row_number() OVER (PARTITION BY operation ORDER BY ts_ns) - 1) % (count(*) OVER (PARTITION BY operation) // 31 + 1) = 0) AS ours
  JOIN (FROM theirs QUALIFY row_number() OVER (ORDER BY ts_ns DESC) <= 20000) AS theirs
    ON theirs.operation = ours.operation AND abs(theirs.dur_ns - ours.dur_ns) <= 20000 + ours.dur_ns // 20
      AND (
        ours.in_elements IS NULL OR theirs.in_elements IS NULL OR ours.operation = 'send'
        OR theirs.in_elements * theirs.element_bytes IN (ours.in_elements * ours.element_bytes, ours.out_elements * ours.element_bytes)
      )
),
votes AS (  -- for distances within 50 µs
  SELECT bucket, count(*) AS votes, median(distance_ns)::BIGINT AS offset_ns
  FROM (SELECT distance_ns, unnest([floor(distance_ns / 5e4) * 2, floor((distance_ns + 2.5e4) / 5e4) * 2 + 1]) AS bucket FROM distances)
  GROUP BY bucket
),
clock AS (
  SELECT
    first.offset_ns, first.votes,
    (SELECT coalesce(max(votes), 0) FROM votes WHERE abs(offset_ns - first.offset_ns) > 100000) AS other_votes
  FROM (FROM votes ORDER BY votes DESC, offset_ns DESC LIMIT 1) AS first
),
shifted AS (
  SELECT theirs.* REPLACE (theirs.ts_ns + offset_ns AS ts_ns, theirs.end_ns + offset_ns AS end_ns), (theirs.ts_ns + theirs.end_ns) // 2 + offset_ns AS middle_ns
  FROM theirs, clock
),
by_time AS (  -- several collectives of a group may be one kernel
  SELECT shifted.file_row, shifted.process_group AS communicator, shifted.operation, shifted.sequence, ours.file_row AS torch_row, ours.lane, ours.number
  FROM shifted ASOF JOIN ours ON ours.operation = shifted.operation AND ours.ts_ns - 20000 <= shifted.middle_ns
  WHERE shifted.middle_ns <= ours.end_ns + 20000
),
numbered AS (  -- the place of a communicator in the kernels of a process group
  SELECT communicator, operation, lane, sequence - number AS ahead
  FROM by_time WHERE sequence IS NOT NULL
  GROUP BY communicator, operation, lane, ahead
  QUALIFY row_number() OVER (PARTITION BY communicator, operation ORDER BY count(*) DESC, lane, ahead) = 1
    AND count(*) >= 0.8 * sum(count(*)) OVER (PARTITION BY communicator, operation)
),
by_sequence AS (
  SELECT shifted.file_row, ours.file_row AS torch_row
  FROM shifted
  JOIN numbered ON numbered.communicator = shifted.process_group AND numbered.operation = shifted.operation
  JOIN ours ON ours.lane = numbered.lane AND ours.operation = numbered.operation AND ours.number = shifted.sequence - numbered.ahead
  WHERE shifted.ts_ns <= ours.end_ns + 1000000 AND shifted.end_ns >= ours.ts_ns - 1000000
),
matched AS MATERIALIZED (
  SELECT shifted.file_row, shifted.correlation, ours.correlation AS torch_correlation, by_sequence.torch_row IS NOT NULL AS is_by_sequence
  FROM shifted
  LEFT JOIN by_sequence ON by_sequence.file_row = shifted.file_row
  LEFT JOIN by_time ON by_time.file_row = shifted.file_row
  JOIN ours ON ours.file_row = coalesce(by_sequence.torch_row, by_time.torch_row)
),
found AS (
  SELECT
    *, other_votes * 5 <= votes * 4 AND both_have >= 0.8 * of_recording AND (votes >= 3 OR both_have = all_of_recording AND both_have = all_of_torch) AS is_one_run
  FROM (
    SELECT
      (SELECT count(*) FROM matched) AS both_have, (SELECT count(*) FROM matched WHERE is_by_sequence) AS by_sequence,
      (SELECT count(*) FROM shifted, (SELECT DISTINCT begin_ns, last_ns FROM ours) WHERE middle_ns BETWEEN begin_ns AND last_ns) AS of_recording,
      (SELECT count(*) FROM theirs) AS all_of_recording, (SELECT count(*) FROM ours) AS all_of_torch
  )
  LEFT JOIN clock ON TRUE
)
SELECT
  recording.file_row, ts_ns + offset_ns AS ts_ns, coalesce(torch_correlation, recording.correlation + (1::BIGINT << 40)) AS correlation,
  NULL::VARCHAR AS rule, concat('{"recorded by":"NCCL profiler plug-in"', if(len(args) > 2, ',' || args[2:], '}')) AS args
FROM recording
JOIN found ON is_one_run
JOIN (SELECT min(ts_ns) AS begin_ns, max(ts_ns + coalesce(dur_ns, 0)) AS end_ns FROM torch) AS recorded
  ON ts_ns + offset_ns <= recorded.end_ns AND ts_ns + coalesce(dur_ns, 0) + offset_ns >= recorded.begin_ns
LEFT JOIN (SELECT DISTINCT correlation, torch_correlation FROM matched) AS links ON links.correlation = recording.correlation
WHERE category <> 'kernel'
UNION ALL BY NAME
SELECT
  if(coalesce(is_one_run, FALSE), 'joined', 'not_joined') AS rule, greatest(if(is_one_run, both_have, of_recording), 1) AS rows,
  CASE
    WHEN all_of_torch = 0 THEN 'torch recorded no collectives on the GPU'
    WHEN all_of_recording = 0 THEN 'the plug-in recorded no channels of kernels: set NCCL_PROFILE_EVENT_MASK to include KernelCh'
    WHEN offset_ns IS NULL THEN 'no collective of both has the same operation, size and duration'
    WHEN is_one_run THEN format(
      '{:d} of {:d} collectives of torch, {:d} by communicator and sequence, {:d} by name, order and time; the clock of the plug-in is {:d} ns behind',
      both_have, all_of_torch, by_sequence, both_have - by_sequence, offset_ns
    )
    WHEN other_votes * 5 > votes * 4 THEN 'its collectives fit at several times of the trace'
    ELSE format('{:d} of {:d} collectives at that time are in the trace of torch too', both_have, of_recording)
  END AS example
FROM found WHERE EXISTS (FROM torch)
