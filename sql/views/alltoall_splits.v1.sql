-- /// tw
-- kind     = "view"
-- name     = "alltoall_splits"
-- version  = 1
-- summary  = "Elements that a rank sends to and receives from each position of its group in an all-to-all, as the trace records them."
-- requires = ["kernels@1", "events@1"]
-- grain    = ["run_id", "rank", "event_id", "position"]
-- order    = ["run_id", "rank", "event_id", "position"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- event_id  = { type = "BIGINT", unit = "id", doc = "The all-to-all on this rank. Untested on real data: the traces at hand record empty lists." }
-- position  = { type = "BIGINT", unit = "count", doc = "Position in the rank list of the group, starting at 1." }
-- peer      = { type = "INTEGER", null = true, doc = "Global rank at that position, by the group's rank list; null if the trace does not list all ranks of the group (PyTorch truncates lists after 30)." }
-- in_share  = { type = "DOUBLE", unit = "ratio", null = true, doc = "Share of the rank's input that it sends there (`In split size`); null if not recorded or truncated." }
-- out_share = { type = "DOUBLE", unit = "ratio", null = true, doc = "Share of the rank's output that it receives from there (`Out split size`); null if not recorded or truncated." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  listed AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      kernels.group_size,
      kernels.group_ranks,
      events.args ->> '$."In split size"' AS in_sizes,
      events.args ->> '$."Out split size"' AS out_sizes
    FROM kernels
    JOIN events USING (run_id, rank, event_id)
    WHERE kernels.kind = 'communication' AND regexp_matches(kernels.collective, '(?i)all_?to_?all')
  ),
  parsed AS (
    -- A truncated list ends in an ellipsis.
    SELECT
      run_id,
      rank,
      event_id,
      group_size,
      CASE WHEN NOT contains(group_ranks, '...') THEN TRY_CAST(group_ranks AS INTEGER[]) END AS group_ranks,
      CASE WHEN NOT contains(in_sizes, '...') THEN TRY_CAST(in_sizes AS BIGINT[]) END AS in_sizes,
      CASE WHEN NOT contains(out_sizes, '...') THEN TRY_CAST(out_sizes AS BIGINT[]) END AS out_sizes
    FROM listed
  ),
  sized AS (
    SELECT
      run_id,
      rank,
      event_id,
      CASE WHEN len(group_ranks) = coalesce(group_size, greatest(len(in_sizes), len(out_sizes))) THEN group_ranks END AS group_ranks,
      CASE WHEN len(in_sizes) = coalesce(group_size, len(in_sizes)) THEN in_sizes END AS in_sizes,
      CASE WHEN len(out_sizes) = coalesce(group_size, len(out_sizes)) THEN out_sizes END AS out_sizes
    FROM parsed
  )
SELECT
  run_id,
  rank,
  event_id,
  position,
  group_ranks[position] AS peer,
  in_sizes[position] / nullif(list_sum(in_sizes), 0) AS in_share,
  out_sizes[position] / nullif(list_sum(out_sizes), 0) AS out_share
FROM sized
CROSS JOIN LATERAL (SELECT unnest(range(1, greatest(coalesce(len(in_sizes), 0), coalesce(len(out_sizes), 0)) + 1)) AS position) AS positions
