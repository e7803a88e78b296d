-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "bandwidth_by_size"
-- version  = 1
-- summary  = "Bandwidth of collectives by operation, message size and number of ranks over all groups: comparable between runs of different models."
-- requires = ["collective_instances@1"]
-- needs    = ["collectives", "message_sizes", "ranks>=2"]
-- grain    = ["run_id", "collective", "size_bucket_bytes", "members"]
-- per      = "window"
-- order    = ["run_id", "collective", "size_bucket_bytes", "members"]
--
-- [columns]
-- run_id             = { type = "VARCHAR", doc = "The run." }
-- collective         = { type = "VARCHAR", doc = "all_reduce, all_gather, …. Only collectives of known size and transfer time in which all ranks of the group take part." }
-- size_bucket_bytes  = { type = "BIGINT", unit = "bytes", doc = "Message size rounded down to a power of 2." }
-- members            = { type = "BIGINT", unit = "count", doc = "Number of ranks in the group." }
-- transfer_ns        = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of the transfer times, without waiting for the last rank." }
-- instances          = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Number of collectives." }
-- message_bytes      = { type = "BIGINT", unit = "bytes", aggregate = "sum", doc = "Sum of the message sizes." }
-- bus_bytes          = { type = "DOUBLE", unit = "bytes", aggregate = "sum", doc = "Sum of the bytes that cross a link, by the convention of each collective (see `collective_instances`)." }
-- algbw_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", aggregate = "message_bytes/transfer_ns", better = "higher", doc = "Algorithm bandwidth: message_bytes / transfer_ns." }
-- busbw_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", aggregate = "bus_bytes/transfer_ns", better = "higher", doc = "Bus bandwidth: bus_bytes / transfer_ns." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  bucket AS (
    SELECT
      run_id,
      collective,
      (1::BIGINT << floor(log2(message_bytes))::INTEGER) AS size_bucket_bytes,
      members,
      sum(transfer_ns)::BIGINT AS transfer_ns,
      count(*) AS instances,
      sum(message_bytes)::BIGINT AS message_bytes,
      -- The factor of a collective depends on it and its number of ranks only.
      min(busbw_bytes_per_ns / algbw_bytes_per_ns) AS bus_factor
    FROM collective_instances
    WHERE algbw_bytes_per_ns > 0 AND busbw_bytes_per_ns > 0
    GROUP BY run_id, collective, size_bucket_bytes, members
  )
SELECT
  run_id,
  collective,
  size_bucket_bytes,
  members,
  transfer_ns,
  instances,
  message_bytes,
  bus_factor * message_bytes AS bus_bytes,
  message_bytes / transfer_ns AS algbw_bytes_per_ns,
  bus_factor * message_bytes / transfer_ns AS busbw_bytes_per_ns
FROM bucket
