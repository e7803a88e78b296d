-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "collective_bandwidth"
-- version  = 1
-- summary  = "Algorithm and bus bandwidth of collectives by process group, element type and message size, with skew kept apart."
-- requires = ["collective_instances@1", "rank_devices@1"]
-- needs    = ["collectives", "message_sizes", "ranks>=2"]
-- grain    = ["run_id", "group_key", "collective", "dtype", "size_bucket_bytes"]
-- order    = ["run_id", "group_key", "collective", "-size_bucket_bytes"]
--
-- [params]
-- min_groups = { type = "BIGINT", default = 3, unit = "count", min = 1, doc = "Minimum number of other groups; with fewer relative_busbw is null." }
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- group_key          = { type = "VARCHAR", doc = "Process group, as in `collective_groups`; `all ranks` if all ranks are assumed." }
-- collective         = { type = "VARCHAR", doc = "all_reduce, all_gather, …. Only collectives in which all ranks of the group take part." }
-- dtype              = { type = "VARCHAR", null = true, doc = "Element type." }
-- size_bucket_bytes  = { type = "BIGINT", unit = "bytes", null = true, doc = "Message size rounded down to a power of 2; null if the size is unknown, and for barrier." }
-- members            = { type = "BIGINT", unit = "count", doc = "Number of ranks in the group." }
-- instances          = { type = "BIGINT", unit = "count", doc = "Number of collectives." }
-- message_bytes      = { type = "BIGINT", unit = "bytes", null = true, doc = "Median message size, by the convention of nccl-tests (see `collective_instances`)." }
-- transfer_p50_ns    = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Median transfer time: the shortest duration of any rank, so without waiting for the last one. Null if a rank may leave before the last one arrives." }
-- transfer_min_ns    = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Shortest transfer time." }
-- skew_p50_ns        = { type = "BIGINT", unit = "ns", null = true, better = "lower", doc = "Median of the longest wait of any rank; not part of the bandwidth." }
-- algbw_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", null = true, better = "higher", doc = "Median algorithm bandwidth: message size / transfer time, in GB/s (10^9 bytes)." }
-- busbw_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", null = true, better = "higher", doc = "Median bus bandwidth, which can be compared with the speed of links: algbw_bytes_per_ns × 2(n-1)/n for all_reduce, × (n-1)/n for all_gather, reduce_scatter, all_to_all. Never from the duration on one rank." }
-- resolution_ns      = { type = "BIGINT", unit = "ns", null = true, doc = "Time resolution of the traces' durations." }
-- resolution_share   = { type = "DOUBLE", unit = "ratio", null = true, doc = "resolution_ns / transfer_p50_ns: relative error of both bandwidths that the resolution alone causes." }
-- link_share         = { type = "DOUBLE", unit = "ratio", null = true, doc = "busbw_bytes_per_ns as a share of the peak of a GPU's links in one direction (`device_specs`). May exceed 1 with reduction in the switch (NVLS, SHARP). Null unless all ranks of the group are on one host and the links of the device are listed." }
-- other_groups       = { type = "BIGINT", unit = "count", doc = "Number of other groups with as many ranks and a bandwidth for the same collective, element type and size bucket." }
-- relative_busbw     = { type = "DOUBLE", unit = "ratio", null = true, better = "higher", doc = "busbw_bytes_per_ns divided by the median busbw_bytes_per_ns of these other groups; well below 1 means slow links of this group, which no rank is to wait_attribution for. Null with fewer than min_groups other groups." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  linked AS (
    SELECT run_id, min(device_link_bytes_per_ns) AS link_bytes_per_ns
    FROM rank_devices
    GROUP BY run_id
    HAVING count(DISTINCT device_name) = 1
  ),
  bucket AS (
    SELECT
      run_id,
      group_key,
      collective,
      dtype,
      (1::BIGINT << floor(log2(nullif(message_bytes, 0)))::INTEGER) AS size_bucket_bytes,
      max(members) AS members,
      bool_and(coalesce(len(hosts) = 1, FALSE)) AS one_host,
      count(*) AS instances,
      quantile_disc(message_bytes, 0.5) AS message_bytes,
      quantile_disc(transfer_ns, 0.5) AS transfer_p50_ns,
      min(transfer_ns) AS transfer_min_ns,
      quantile_disc(wait_ns, 0.5) AS skew_p50_ns,
      -- Upper of the two middle values, as it belongs to the lower transfer time.
      -quantile_disc(-algbw_bytes_per_ns, 0.5) AS algbw_bytes_per_ns,
      -quantile_disc(-busbw_bytes_per_ns, 0.5) AS busbw_bytes_per_ns,
      max(resolution_ns) AS resolution_ns
    FROM collective_instances
    GROUP BY run_id, group_key, collective, dtype, size_bucket_bytes
  ),
  others AS (
    SELECT
      bucket.run_id,
      bucket.group_key,
      bucket.collective,
      bucket.dtype,
      bucket.size_bucket_bytes,
      count(*) AS other_groups,
      quantile_disc(other.busbw_bytes_per_ns, 0.5) AS other_bytes_per_ns
    FROM bucket
    JOIN bucket AS other
      ON other.run_id = bucket.run_id
      AND other.collective = bucket.collective
      AND other.dtype IS NOT DISTINCT FROM bucket.dtype
      AND other.size_bucket_bytes = bucket.size_bucket_bytes
      AND other.members = bucket.members
      AND other.group_key <> bucket.group_key
      AND other.busbw_bytes_per_ns IS NOT NULL
    GROUP BY bucket.run_id, bucket.group_key, bucket.collective, bucket.dtype, bucket.size_bucket_bytes
  )
SELECT
  bucket.run_id,
  bucket.group_key,
  bucket.collective,
  bucket.dtype,
  bucket.size_bucket_bytes,
  bucket.members,
  bucket.instances,
  bucket.message_bytes,
  bucket.transfer_p50_ns,
  bucket.transfer_min_ns,
  bucket.skew_p50_ns,
  bucket.algbw_bytes_per_ns,
  bucket.busbw_bytes_per_ns,
  bucket.resolution_ns,
  bucket.resolution_ns / nullif(bucket.transfer_p50_ns, 0) AS resolution_share,
  CASE WHEN bucket.one_host THEN bucket.busbw_bytes_per_ns / linked.link_bytes_per_ns END AS link_share,
  coalesce(others.other_groups, 0) AS other_groups,
  CASE WHEN others.other_groups >= $min_groups THEN bucket.busbw_bytes_per_ns / nullif(others.other_bytes_per_ns, 0) END AS relative_busbw
FROM bucket
LEFT JOIN linked USING (run_id)
LEFT JOIN others
  ON others.run_id = bucket.run_id
  AND others.group_key = bucket.group_key
  AND others.collective = bucket.collective
  AND others.dtype IS NOT DISTINCT FROM bucket.dtype
  AND others.size_bucket_bytes = bucket.size_bucket_bytes
