-- /// tw
-- kind     = "view"
-- name     = "rank_devices"
-- version  = 1
-- summary  = "Cache and links of each rank's device, from `device_specs`."
-- requires = ["ranks@1", "device_specs@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id                   = { type = "VARCHAR", doc = "The run." }
-- rank                     = { type = "INTEGER", doc = "The rank." }
-- device_name              = { type = "VARCHAR", null = true, doc = "Name of its first device." }
-- l2_bytes                 = { type = "BIGINT", unit = "bytes", null = true, doc = "Size of the L2 cache, as in `device_specs`; null if the device is not listed." }
-- host_link_bytes_per_ns   = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Bandwidth of the link to the host." }
-- device_link_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Sum over the links to other devices." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  device AS (
    -- Of the patterns that match a name, the first counts, even where it has no figure.
    SELECT
      named.device_name,
      arg_min_null(spec.l2_bytes, spec.rule_id) AS l2_bytes,
      arg_min_null(spec.host_link_bytes_per_ns, spec.rule_id) AS host_link_bytes_per_ns,
      arg_min_null(spec.device_link_bytes_per_ns, spec.rule_id) AS device_link_bytes_per_ns
    FROM (SELECT DISTINCT device_name FROM ranks) AS named
    JOIN device_specs AS spec ON regexp_matches(named.device_name, spec.pattern)
    GROUP BY named.device_name
  )
SELECT
  ranks.run_id,
  ranks.rank,
  ranks.device_name,
  device.l2_bytes,
  device.host_link_bytes_per_ns,
  device.device_link_bytes_per_ns
FROM ranks
LEFT JOIN device USING (device_name)
