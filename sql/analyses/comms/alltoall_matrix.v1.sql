-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "alltoall_matrix"
-- version  = 1
-- summary  = "Bytes that each rank sends to each other rank in all-to-all collectives with recorded split sizes."
-- requires = ["alltoall_splits@1", "collectives@1"]
-- needs    = ["collectives", "collective_args"]
-- grain    = ["run_id", "group_key", "src", "dst"]
-- order    = ["run_id", "group_key", "src", "dst"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- group_key  = { type = "VARCHAR", null = true, doc = "Process group: name, size and ranks." }
-- src        = { type = "INTEGER", doc = "The rank that sends." }
-- dst        = { type = "INTEGER", doc = "The rank that receives, as a global rank. Untested on real data: the traces at hand record empty lists of split sizes." }
-- sent_bytes = { type = "BIGINT", unit = "bytes", doc = "Bytes sent in all of them, from the split sizes of the sender; includes the part that a rank keeps (src = dst)." }
-- share      = { type = "DOUBLE", unit = "ratio", null = true, doc = "sent_bytes as a share of the bytes of the group." }
-- count      = { type = "BIGINT", unit = "count", doc = "Number of all-to-all collectives of the sender with recorded split sizes." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  sent AS (
    SELECT
      split.run_id,
      collectives.group_key,
      split.rank AS src,
      split.peer AS dst,
      sum(
        round(split.in_share * collectives.in_elements)::BIGINT
        * (collectives.bytes // nullif(greatest(collectives.in_elements, collectives.out_elements), 0))
      )::BIGINT AS sent_bytes,
      count(*) AS count
    FROM alltoall_splits AS split
    JOIN collectives USING (run_id, rank, event_id)
    WHERE split.peer IS NOT NULL AND split.in_share IS NOT NULL AND collectives.bytes IS NOT NULL
    GROUP BY split.run_id, collectives.group_key, split.rank, split.peer
  )
SELECT
  run_id,
  group_key,
  src,
  dst,
  sent_bytes,
  sent_bytes / nullif((sum(sent_bytes) OVER (PARTITION BY run_id, group_key))::BIGINT, 0) AS share,
  count
FROM sent
