-- /// tw
-- kind     = "view"
-- name     = "recorded_devices"
-- version  = 1
-- summary  = "Properties of the devices of each rank, as the profiler recorded them."
-- requires = ["ranks@1"]
-- grain    = ["run_id", "rank", "device"]
-- order    = ["run_id", "rank", "device"]
--
-- [columns]
-- run_id                  = { type = "VARCHAR", doc = "The run." }
-- rank                    = { type = "INTEGER", doc = "The rank." }
-- device                  = { type = "BIGINT", unit = "id", doc = "The device." }
-- name                    = { type = "VARCHAR", null = true, doc = "Its name." }
-- capability_major        = { type = "BIGINT", null = true, unit = "count", doc = "Major compute capability." }
-- memory_bytes            = { type = "BIGINT", null = true, unit = "bytes", doc = "Size of its memory." }
-- memory_bytes_per_second = { type = "BIGINT", null = true, doc = "Peak bandwidth of its memory." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  listed AS (
    SELECT run_id, rank, unnest(header -> '$.deviceProperties[*]') AS properties
    FROM ranks
  )
SELECT
  run_id,
  rank,
  TRY_CAST(properties ->> '$.id' AS BIGINT) AS device,
  min(properties ->> '$.name') AS name,
  min(TRY_CAST(properties ->> '$.computeMajor' AS BIGINT)) AS capability_major,
  max(TRY_CAST(properties ->> '$.totalGlobalMem' AS BIGINT)) AS memory_bytes,
  max(TRY_CAST(properties ->> '$.memoryBandwidth' AS BIGINT)) AS memory_bytes_per_second
FROM listed
GROUP BY ALL
HAVING device IS NOT NULL
