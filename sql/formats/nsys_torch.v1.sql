-- /// tw
-- kind    = "format"
-- name    = "nsys_torch"
-- version = 1
-- summary = "Nsight Systems and torch: what the one recorded of a process beside the trace of the other."
--
-- [tables.torch]
-- optional = [
--   "category VARCHAR", "name VARCHAR", "tid VARCHAR", "ts_ns", "dur_ns", "device", "stream", "correlation",
-- ]
--
-- [tables.nsight]
-- optional = [
--   "category VARCHAR", "name VARCHAR", "tid VARCHAR", "ts_ns", "dur_ns", "device", "stream", "correlation",
--   "args VARCHAR",
-- ]
--
-- [changes]
-- 1 = "First version."
-- ///
-- An event that both recorded is the one of torch, with its stacks and shapes. The others of Nsight Systems are added
-- if they are in the time of the torch trace, on its clock; `file_row` is their number.
WITH events AS MATERIALIZED (
  SELECT
    * EXCLUDE (category), ts_ns + coalesce(dur_ns, 0) AS end_ns, coalesce(category, '') IN ('kernel', 'gpu_memcpy', 'gpu_memset') AS is_gpu,
    coalesce(category, '') IN ('cuda_runtime', 'cuda_driver') AS is_call, if(is_call, 'call', coalesce(category, '')) AS category, if(is_gpu, device::VARCHAR, tid) AS place,
    -- The two write types of arguments and of templates differently.
    CASE
      WHEN category <> 'kernel' THEN split_part(name, ' (', 1)
      ELSE coalesce(
        nullif(regexp_extract(regexp_replace(name, '\(anonymous namespace\)::|<unnamed>::', '', 'g'), '^(?:void )?(?:\w+::)*(\w+)', 1), ''), name
      )
    END AS key
  FROM (
    SELECT TRUE AS is_torch, file_row, category, name, tid, ts_ns, dur_ns, device, stream, correlation FROM torch
    UNION ALL SELECT FALSE, file_row, category, name, tid, ts_ns, dur_ns, device, stream, correlation FROM nsight
  )
  WHERE ts_ns IS NOT NULL
),
recorded AS (
  SELECT
    min(ts_ns) FILTER (is_torch) AS begin_ns, max(end_ns) FILTER (is_torch) AS end_ns, min(ts_ns) > 100000000000000000 AS is_utc,
    coalesce(bool_or(is_gpu AND is_torch), FALSE) AS has_activities, coalesce(bool_or(category = 'cpu_op' AND is_torch), FALSE) AS has_operators
  FROM events
),
distances AS (  -- of up to 60 of each name in the torch trace from those of Nsight Systems, of rare names first
  SELECT of_torch.ts_ns - of_nsight.ts_ns AS distance_ns
  FROM (
    FROM events WHERE is_torch AND (is_gpu OR is_call)
    QUALIFY (row_number() OVER (PARTITION BY category, key ORDER BY ts_ns) - 1) % (count(*) OVER (PARTITION BY category, key) // 31 + 1) = 0
  ) AS of_torch
  JOIN (
    FROM (SELECT *, count(*) OVER (PARTITION BY category, key) AS number FROM events WHERE NOT is_torch AND (is_gpu OR is_call))
    QUALIFY row_number() OVER (ORDER BY number, category, key, ts_ns) <= 10000
  ) AS of_nsight USING (category, key), recorded
  WHERE NOT is_utc OR abs(distance_ns) <= 1000000000
),
clock AS (  -- the distance of most of them, within 20 µs
  SELECT
    coalesce(
      (
        SELECT median(distance_ns)::BIGINT
        FROM (SELECT distance_ns, unnest([floor(distance_ns / 2e4) * 2, floor((distance_ns + 1e4) / 2e4) * 2 + 1]) AS bucket FROM distances)
        GROUP BY bucket ORDER BY count(*) DESC, abs(median(distance_ns)) LIMIT 1
      ),
      if(is_utc, 0, NULL)
    ) AS offset_ns
  FROM recorded
),
shifted AS MATERIALIZED (
  SELECT events.* REPLACE (ts_ns + offset_ns AS ts_ns, events.end_ns + offset_ns AS end_ns)
  FROM events, clock, recorded
  WHERE NOT is_torch AND ts_ns + offset_ns <= recorded.end_ns AND events.end_ns + offset_ns >= begin_ns
),
near AS (
  SELECT
    of_nsight.file_row, of_torch.file_row AS torch_row, of_nsight.correlation, of_torch.correlation AS torch_correlation,
    of_nsight.is_gpu, abs(of_nsight.ts_ns - of_torch.ts_ns) AS distance_ns
  FROM (SELECT *, unnest([-1, 0, 1]) + ts_ns // 20000 AS bucket FROM shifted) AS of_nsight
  JOIN (SELECT *, ts_ns // 20000 AS bucket FROM events WHERE is_torch) AS of_torch USING (category, key, place, bucket)
  WHERE distance_ns <= 20000
  QUALIFY row_number() OVER (PARTITION BY of_nsight.file_row ORDER BY distance_ns, torch_row) = 1
),
matched AS MATERIALIZED (FROM near QUALIFY row_number() OVER (PARTITION BY torch_row ORDER BY distance_ns, file_row) = 1),
links AS (SELECT correlation, min(torch_correlation) AS torch_correlation FROM matched GROUP BY correlation),
beside AS MATERIALIZED (  -- what is not matched
  SELECT
    shifted.*, torch_correlation, covering.end_ns > shifted.ts_ns + 2000 AS is_covered,
    -- Without GPU activities of torch, its operators show whether calls are of the same process and time.
    shifted.is_call AND operators.latest_ns >= shifted.ts_ns AS is_inside
  FROM shifted
  ANTI JOIN matched ON matched.file_row = shifted.file_row
  LEFT JOIN links ON links.correlation = shifted.correlation
  ASOF LEFT JOIN (SELECT ts_ns, end_ns, device, stream FROM events WHERE is_torch AND is_gpu) AS covering
    ON shifted.is_gpu AND covering.device = shifted.device AND covering.stream = shifted.stream AND covering.ts_ns < shifted.end_ns - 2000
  ASOF LEFT JOIN (
    SELECT tid, ts_ns, max(end_ns) OVER (PARTITION BY tid ORDER BY ts_ns, file_row) AS latest_ns FROM events WHERE is_torch AND category = 'cpu_op'
  ) AS operators ON operators.tid = shifted.tid AND operators.ts_ns <= shifted.ts_ns
),
added AS (
  SELECT beside.* REPLACE (coalesce(torch_correlation, correlation + (1::BIGINT << 40)) AS correlation)
  FROM beside, recorded
  WHERE is_covered IS NOT TRUE AND NOT (category = 'cpu_op' AND has_operators)
    AND NOT (is_call AND coalesce(torch_correlation IN (SELECT correlation FROM events WHERE is_torch AND is_call AND correlation IS NOT NULL), FALSE))
),
counted AS (
  SELECT
    (SELECT count(*) FROM matched WHERE is_gpu) AS both_have, (SELECT count(*) FROM added WHERE is_gpu) AS only_nsight,
    (
      SELECT count(*)
      FROM events, (SELECT min(ts_ns) AS first_ns, max(end_ns) AS last_ns FROM shifted WHERE is_gpu)
      WHERE is_torch AND is_gpu AND ts_ns BETWEEN first_ns - 20000 AND last_ns
    ) AS of_torch,
    (SELECT count(*) FILTER (is_inside) / count(*) FROM beside WHERE is_call) AS inside
),
found AS (
  SELECT
    *, if(has_activities, both_have > 0 AND both_have >= 0.8 * of_torch, is_utc AND coalesce(inside, 0) >= 0.5) AS is_one_run
  FROM counted, clock, recorded
)
SELECT
  added.file_row, added.ts_ns, added.correlation, NULL::VARCHAR AS rule,
  CASE
    WHEN is_gpu OR is_call THEN concat(
      '{"recorded by":"Nsight Systems"', if(len(args) > 2, ',', '}'),
      coalesce(regexp_replace(args[2:], '"correlation": ?\d+', '"correlation":' || added.correlation), args[2:])
    )
    ELSE args
  END AS args
FROM added JOIN nsight USING (file_row), found
WHERE is_one_run
UNION ALL BY NAME
SELECT
  if(is_one_run, 'joined', 'not_joined') AS rule, if(is_one_run, both_have + only_nsight, of_torch) AS rows,
  CASE
    WHEN is_one_run THEN format(
      '{:d} GPU activities of both, {:d} only of Nsight Systems, {:d} only of torch; its clock is {:d} ns ahead',
      both_have, only_nsight, of_torch - both_have, offset_ns
    )
    WHEN has_activities THEN format('{:d} of {:d} GPU activities of torch at that time are in Nsight Systems too', both_have, of_torch)
    ELSE 'torch recorded no GPU activities, and calls of Nsight Systems are not inside its operators'
  END AS example
FROM found WHERE EXISTS (FROM torch)
