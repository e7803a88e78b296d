-- /// tw
-- kind     = "view"
-- name     = "host_segments"
-- version  = 1
-- summary  = "The time of each rank's training thread, split into segments of one innermost slice and one step."
-- requires = ["training_slices@1", "steps@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank; ranks without host slices have no segments." }
-- start_ns   = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the segment. The first one starts with the first slice of the training thread or the first step's period, whichever is earlier. The training thread is that of `training_threads`." }
-- segment_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the segment; always positive. Segments are contiguous; the last one ends with the last slice or period." }
-- step       = { type = "BIGINT", unit = "id", null = true, doc = "The step whose period contains the segment; null before the first period and after the last." }
-- category   = { type = "VARCHAR", doc = "data_loading (slices that match `data_loading_rules`, with everything called in them), operator, call (runtime and driver), python, other_slice, annotation (where no other slice runs in it), or unrecorded: no slice but the step's." }
-- slice_id   = { type = "BIGINT", unit = "id", null = true, doc = "The innermost slice; of data loading the outermost one, of annotations the innermost. Null if unrecorded." }
-- name       = { type = "VARCHAR", null = true, doc = "Its name, without object addresses." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  own AS (
    SELECT run_id, rank, event_id, next_id, is_outlasted, pre, start_ns, end_ns, category, name, is_loading
    FROM training_slices
    WHERE category <> 'step'
  ),
  loading AS (
    -- The outermost ones.
    SELECT own.run_id, own.rank, own.event_id, own.start_ns, own.end_ns
    FROM own
    WHERE own.is_loading
    WINDOW earlier AS (
      PARTITION BY own.run_id, own.rank
      ORDER BY own.start_ns, own.end_ns DESC, own.event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
    QUALIFY own.start_ns >= coalesce(max(own.end_ns) OVER earlier, own.start_ns)
  ),
  period AS (
    SELECT run_id, rank, step, period_start_ns AS start_ns, period_start_ns + period_ns AS end_ns
    FROM steps
    WHERE period_ns > 0
  ),
  point AS (
    -- What begins in each layer: at the end of a slice its parent, or nothing (-1), unless what it called runs on. Of the
    -- points of an instant the last one counts: ends come first, inner ones before outer ones, then starts, outer ones
    -- before inner ones.
    SELECT run_id, rank, CASE category WHEN 'annotation' THEN 'annotation' ELSE 'slice' END AS layer,
      start_ns AS at_ns, 1 AS turn, pre AS place, event_id AS owner_id
    FROM own
    UNION ALL
    SELECT own.run_id, own.rank, CASE own.category WHEN 'annotation' THEN 'annotation' ELSE 'slice' END,
      own.end_ns, 0, -own.pre, coalesce(parent.event_id, -1)
    FROM own
    LEFT JOIN own AS parent
      ON parent.run_id = own.run_id
      AND parent.rank = own.rank
      AND parent.event_id = own.next_id
    WHERE NOT own.is_outlasted
    UNION ALL
    SELECT run_id, rank, 'data', start_ns, 1, 0, event_id
    FROM loading
    UNION ALL
    SELECT run_id, rank, 'data', end_ns, 0, 0, -1
    FROM loading
    UNION ALL
    SELECT run_id, rank, 'step', start_ns, 2, 0, step
    FROM period
    UNION ALL
    SELECT run_id, rank, 'step', end_ns, 0, 0, -1
    FROM period
  ),
  numbered AS (
    SELECT
      run_id,
      rank,
      at_ns,
      layer,
      owner_id,
      row_number() OVER (PARTITION BY run_id, rank ORDER BY at_ns, turn, place, layer, owner_id) AS number
    FROM point
  ),
  state AS (
    -- The last owner so far in each layer: the maximum of number and owner, packed into one number.
    SELECT
      run_id,
      rank,
      at_ns,
      lead(at_ns) OVER so_far AS until_ns,
      nullif(((max(CASE layer WHEN 'step' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS step,
      nullif(((max(CASE layer WHEN 'data' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS data_id,
      nullif(((max(CASE layer WHEN 'slice' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS slice_id,
      nullif(((max(CASE layer WHEN 'annotation' THEN (number::HUGEINT << 64) + owner_id + 1 END) OVER so_far) & 18446744073709551615)::BIGINT - 1, -1) AS annotation_id
    FROM numbered
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY number ROWS UNBOUNDED PRECEDING)
  ),
  part AS (
    SELECT
      run_id,
      rank,
      at_ns AS start_ns,
      until_ns - at_ns AS segment_ns,
      step,
      data_id IS NOT NULL AS is_data,
      coalesce(data_id, slice_id, annotation_id) AS slice_id
    FROM state
    WHERE until_ns > at_ns
  )
SELECT
  part.run_id,
  part.rank,
  part.start_ns,
  part.segment_ns,
  part.step,
  CASE WHEN part.is_data THEN 'data_loading' ELSE coalesce(own.category, 'unrecorded') END AS category,
  part.slice_id,
  own.name
FROM part
LEFT JOIN own ON own.run_id = part.run_id AND own.rank = part.rank AND own.event_id = part.slice_id
