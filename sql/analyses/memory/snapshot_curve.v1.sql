-- /// tw
-- kind     = "analysis"
-- name     = "snapshot_curve"
-- version  = 1
-- summary  = "Allocated, active and reserved bytes of each device after each entry of a memory snapshot."
-- requires = ["snapshot_states@1"]
-- needs    = ["snapshot"]
-- grain    = ["run_id", "rank", "device", "entry"]
-- order    = ["run_id", "rank", "device", "entry"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- device          = { type = "BIGINT", unit = "id", doc = "The device." }
-- entry           = { type = "BIGINT", unit = "id", signed = true, doc = "The entry; -1 for the state before the first one." }
-- ts_ns           = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "Timestamp of the entry; null before the first one." }
-- action          = { type = "VARCHAR", null = true, doc = "Action of the entry; null before the first one." }
-- allocated_bytes = { type = "BIGINT", unit = "bytes", signed = true, better = "lower", doc = "Bytes requested for blocks that are not freed." }
-- active_bytes    = { type = "BIGINT", unit = "bytes", signed = true, better = "lower", doc = "The same, plus blocks that were freed while another stream still used them." }
-- reserved_bytes  = { type = "BIGINT", unit = "bytes", signed = true, better = "lower", doc = "Bytes that the allocator holds of the device." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  device,
  entry,
  ts_ns,
  action,
  allocated_bytes,
  active_bytes,
  reserved_bytes
FROM snapshot_states
