-- /// tw
-- kind     = "view"
-- name     = "judged_pieces"
-- version  = 1
-- summary  = "Segments of `device_pieces` within the analyzed interval of each rank: its complete steps, or its GPU window if there are none."
-- requires = ["device_pieces@1", "judged_spans@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank; ranks without GPU activity have no segments." }
-- start_ns  = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the segment." }
-- piece_ns  = { type = "BIGINT", unit = "ns", doc = "Duration of the segment; the segments of a rank sum to judged_ns." }
-- kind      = { type = "VARCHAR", doc = "computation, communication, memory, other or idle." }
-- kernel_id = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that the segment is attributed to; null if idle." }
-- cause     = { type = "VARCHAR", null = true, doc = "Idle cause; null if busy." }
-- wait_id   = { type = "BIGINT", unit = "id", null = true, doc = "The blocking call that delayed the launch; null unless the cause is sync." }
-- after_id  = { type = "BIGINT", unit = "id", null = true, doc = "The GPU activity that ends the gap; null if busy or outside." }
-- gap_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "Duration of the entire gap; null if busy or outside." }
-- steps     = { type = "BIGINT", unit = "count", doc = "Complete steps in the analyzed interval; 0 if there are none." }
-- judged_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the analyzed interval." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  piece.run_id,
  piece.rank,
  piece.start_ns,
  piece.piece_ns,
  piece.kind,
  piece.kernel_id,
  piece.cause,
  piece.wait_id,
  piece.after_id,
  piece.gap_ns,
  span.steps,
  span.judged_ns
FROM device_pieces AS piece
JOIN judged_spans AS span
  ON span.run_id = piece.run_id
  AND span.rank = piece.rank
  AND piece.start_ns >= span.start_ns
  AND piece.start_ns < span.end_ns
