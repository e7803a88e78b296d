-- /// tw
-- kind     = "view"
-- name     = "judged_pieces"
-- version  = 1
-- summary  = "The pieces of `device_pieces` in the stretch by which a rank is judged: its complete steps, else its GPU rows."
-- requires = ["device_pieces@1", "judged_spans@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank; one without GPU rows has no pieces." }
-- start_ns  = { type = "BIGINT", unit = "ts", signed = true, doc = "Where the piece begins." }
-- piece_ns  = { type = "BIGINT", unit = "ns", doc = "How long it is; the pieces of a rank add up to judged_ns." }
-- kind      = { type = "VARCHAR", doc = "computation, communication, memory, other or idle." }
-- kernel_id = { type = "BIGINT", unit = "id", null = true, doc = "The GPU row that owns it; null where idle." }
-- cause     = { type = "VARCHAR", null = true, doc = "Why it is idle; null where busy." }
-- wait_id   = { type = "BIGINT", unit = "id", null = true, doc = "The blocking call before it; null unless the cause is sync." }
-- after_id  = { type = "BIGINT", unit = "id", null = true, doc = "The GPU row that ends the gap." }
-- gap_ns    = { type = "BIGINT", unit = "ns", null = true, doc = "How long the whole gap is." }
-- steps     = { type = "BIGINT", unit = "count", doc = "Complete steps in the stretch; 0 where it has none." }
-- judged_ns = { type = "BIGINT", unit = "ns", doc = "How long the stretch is." }
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
