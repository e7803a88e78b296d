-- /// tw
-- kind      = "table"
-- name      = "uncategorised"
-- version   = 1
-- summary   = "A category for slices that have none in the file or a vendor's own, from their process, name or spelling."
-- requires  = ["raw@1", "kernel_rules@1", "categories@1"]
-- grain     = ["run_id", "rank", "event_id"]
-- order     = ["run_id", "rank", "event_id"]
-- transient = true
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The slice." }
-- category = { type = "VARCHAR", doc = "The category given to it." }
-- role     = { type = "VARCHAR", doc = "device or runtime." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device_process AS (
    SELECT DISTINCT pid ->> '$' AS pid
    FROM raw
    WHERE ph = 'M' AND name = 'process_name' AND regexp_matches(args ->> 'name', '^(Ascend Hardware|GPU ?[0-9]+)$')
  ),
  slice AS (
    SELECT run_id, rank, event_id, name, pid ->> '$' AS pid
    FROM raw
    WHERE ph = 'X' AND cat IS NULL
  ),
  copy_or_set AS (
    SELECT kernel.name, arg_min(rule.activity, rule.rule_id) AS activity
    FROM (SELECT DISTINCT name FROM slice) AS kernel
    JOIN kernel_rules AS rule ON regexp_matches(kernel.name, rule.pattern)
    WHERE rule.category = 'uncategorised'
    GROUP BY kernel.name
  )
SELECT
  slice.run_id,
  slice.rank,
  slice.event_id,
  'gpu_' || copy_or_set.activity AS category,
  'device' AS role
FROM slice
JOIN device_process ON device_process.pid = slice.pid
JOIN copy_or_set ON copy_or_set.name = slice.name
UNION ALL
SELECT slice.run_id, slice.rank, slice.event_id, 'kernel', 'device'
FROM slice
JOIN device_process ON device_process.pid = slice.pid
ANTI JOIN copy_or_set ON copy_or_set.name = slice.name
UNION ALL
SELECT
  slice.run_id,
  slice.rank,
  slice.event_id,
  CASE WHEN slice.name LIKE 'AscendCL@%' THEN 'privateuse1_runtime' ELSE 'cuda_runtime' END,
  'runtime'
FROM slice
ANTI JOIN device_process ON device_process.pid = slice.pid
WHERE regexp_matches(slice.name, '^(hip|cuda|cu)[A-Z]|^AscendCL@')
UNION ALL
-- Other vendors' backends call theirs after the device: musa_runtime, gcu_driver, ….
SELECT run_id, rank, event_id, 'privateuse1_' || regexp_extract(cat, '[a-z]+$'), 'runtime'
FROM raw
WHERE ph IN ('X', 'B') AND (ends_with(cat, '_runtime') OR ends_with(cat, '_driver'))
  AND cat NOT IN (SELECT raw_category FROM categories)
