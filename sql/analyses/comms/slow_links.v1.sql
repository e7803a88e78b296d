-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "slow_links"
-- version  = 1
-- summary  = "Bus bandwidth of the process groups that use a link (pair of hosts, or rank) compared with that of the other groups."
-- requires = ["collective_instances@1"]
-- needs    = ["collectives", "message_sizes", "ranks>=2"]
-- grain    = ["run_id", "link", "collective", "dtype", "size_bucket_bytes", "members"]
-- order    = ["run_id", "relative_busbw", "link"]
--
-- [params]
-- min_groups = { type = "BIGINT", default = 3, unit = "count", min = 1, doc = "Minimum number of groups on each side of a comparison." }
--
-- [columns]
-- run_id                     = { type = "VARCHAR", doc = "The run." }
-- link                       = { type = "VARCHAR", doc = "`HOST – HOST` in runs on several hosts; `rank N` in runs on one host or with unknown hosts. Only links with at least min_groups groups that use it, and as many that do not." }
-- collective                 = { type = "VARCHAR", doc = "all_reduce, all_gather, …." }
-- dtype                      = { type = "VARCHAR", null = true, doc = "Element type." }
-- size_bucket_bytes          = { type = "BIGINT", unit = "bytes", doc = "Message size rounded down to a power of 2." }
-- members                    = { type = "BIGINT", unit = "count", doc = "Number of ranks in each of the groups that are compared." }
-- groups_with                = { type = "BIGINT", unit = "count", doc = "Groups that contain both hosts, or the rank." }
-- groups_without             = { type = "BIGINT", unit = "count", doc = "Groups that do not; for a pair of hosts only groups on several hosts." }
-- busbw_with_bytes_per_ns    = { type = "DOUBLE", unit = "bytes_per_ns", better = "higher", doc = "Median of the bus bandwidths of the groups that use the link." }
-- busbw_without_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", better = "higher", doc = "Median of those that do not." }
-- relative_busbw             = { type = "DOUBLE", unit = "ratio", better = "higher", doc = "busbw_with_bytes_per_ns / busbw_without_bytes_per_ns. Well below 1 means a slow link; a single slow group shows in relative_busbw of `collective_bandwidth`." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  grouped AS (
    SELECT
      run_id,
      group_key,
      collective,
      dtype,
      (1::BIGINT << floor(log2(nullif(message_bytes, 0)))::INTEGER) AS size_bucket_bytes,
      members,
      ranks,
      hosts,
      quantile_disc(busbw_bytes_per_ns, 0.5) AS busbw_bytes_per_ns
    FROM collective_instances
    WHERE busbw_bytes_per_ns IS NOT NULL
    GROUP BY run_id, group_key, collective, dtype, size_bucket_bytes, members, ranks, hosts
  ),
  host AS (
    SELECT DISTINCT run_id, unnest(hosts) AS host
    FROM grouped
  ),
  spread AS (
    SELECT run_id, count(*) > 1 AS on_several_hosts
    FROM host
    GROUP BY run_id
  ),
  link AS (
    SELECT first.run_id, first.host || ' – ' || second.host AS link, first.host AS host_a, second.host AS host_b, NULL::INTEGER AS rank
    FROM host AS first
    JOIN host AS second ON second.run_id = first.run_id AND second.host > first.host
    UNION ALL
    SELECT DISTINCT grouped.run_id, 'rank ' || member.rank, NULL, NULL, member.rank
    FROM grouped
    CROSS JOIN LATERAL (SELECT unnest(grouped.ranks) AS rank) AS member
    LEFT JOIN spread USING (run_id)
    WHERE NOT coalesce(spread.on_several_hosts, FALSE)
  ),
  used AS (
    SELECT
      grouped.run_id,
      link.link,
      grouped.collective,
      grouped.dtype,
      grouped.size_bucket_bytes,
      grouped.members,
      grouped.busbw_bytes_per_ns,
      CASE
        WHEN link.rank IS NULL THEN list_has_all(grouped.hosts, [link.host_a, link.host_b])
        ELSE list_contains(grouped.ranks, link.rank)
      END AS uses
    FROM grouped
    JOIN link USING (run_id)
    WHERE link.rank IS NOT NULL OR len(grouped.hosts) > 1
  )
SELECT
  run_id,
  link,
  collective,
  dtype,
  size_bucket_bytes,
  members,
  count(*) FILTER (uses) AS groups_with,
  count(*) FILTER (NOT uses) AS groups_without,
  quantile_disc(busbw_bytes_per_ns, 0.5) FILTER (uses) AS busbw_with_bytes_per_ns,
  quantile_disc(busbw_bytes_per_ns, 0.5) FILTER (NOT uses) AS busbw_without_bytes_per_ns,
  busbw_with_bytes_per_ns / busbw_without_bytes_per_ns AS relative_busbw
FROM used
GROUP BY run_id, link, collective, dtype, size_bucket_bytes, members
HAVING groups_with >= $min_groups AND groups_without >= $min_groups
