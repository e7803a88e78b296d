-- /// tw
-- kind     = "view"
-- name     = "host_segments"
-- version  = 1
-- summary  = "The time of each rank's training thread, split into segments of one innermost slice and one step."
-- requires = ["training_slices@1", "events@1", "steps@1"]
-- grain    = ["run_id", "rank", "start_ns"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id     = { type = "VARCHAR", doc = "The run." }
-- rank       = { type = "INTEGER", doc = "The rank; ranks without host slices have no segments." }
-- start_ns   = { type = "BIGINT", unit = "ts", signed = true, doc = "Start of the segment. The first one starts with the first slice of the training thread or the first step's period, whichever is earlier. The training thread is that of `training_threads`." }
-- segment_ns = { type = "BIGINT", unit = "ns", doc = "Duration of the segment; always positive. Segments are contiguous; the last one ends with the last slice or period." }
-- step       = { type = "BIGINT", unit = "id", null = true, doc = "The step whose period contains the segment; null before the first period and after the last." }
-- category   = { type = "VARCHAR", doc = "data_loading (slices that match `data_loading_rules`, with everything called in them), operator, call (runtime and driver), python, other_slice, annotation (where no other slice runs in it), or unrecorded: no slice but the step's. Where it would be one of the last two while a collective of the host (gloo, MPI) is open, it is waiting." }
-- slice_id   = { type = "BIGINT", unit = "id", null = true, doc = "The innermost slice; of data loading the outermost one, of annotations the innermost. Of waiting the collective, of several at once the first. Null if unrecorded." }
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
  span AS (
    SELECT run_id, rank, min(start_ns) AS from_ns, max(end_ns) AS to_ns
    FROM (SELECT run_id, rank, start_ns, end_ns FROM own UNION ALL SELECT run_id, rank, start_ns, end_ns FROM period) AS covered
    GROUP BY run_id, rank
  ),
  collective AS (
    SELECT
      run_id,
      rank,
      event_id,
      name,
      ts_ns AS start_ns,
      ts_ns + dur_ns AS end_ns,
      max(ts_ns + dur_ns) OVER (
        PARTITION BY run_id, rank ORDER BY ts_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS reached_ns
    FROM events
    WHERE category = 'user_annotation' AND regexp_matches(name, '^(gloo|mpi):\w') AND dur_ns > 0
  ),
  awaited AS (
    -- The part of each that follows those before it, within the time of the thread.
    SELECT
      collective.run_id,
      collective.rank,
      collective.event_id,
      collective.name,
      greatest(collective.start_ns, collective.reached_ns, span.from_ns) AS start_ns,
      least(collective.end_ns, span.to_ns) AS end_ns
    FROM collective
    JOIN span USING (run_id, rank)
    WHERE least(collective.end_ns, span.to_ns) > greatest(collective.start_ns, collective.reached_ns, span.from_ns)
  ),
  point AS (
    -- What begins in each layer: at the end of a slice its parent, or nothing (-1), unless what it called runs on. Of the
    -- points of an instant the last one counts: ends come first, inner ones before outer ones, then starts, outer ones
    -- before inner ones.
    SELECT run_id, rank, start_ns, pre AS place, CASE WHEN category <> 'annotation' THEN event_id END AS slice_id,
      CASE WHEN category = 'annotation' THEN event_id END AS annotation_id, NULL::BIGINT AS data_id,
      NULL::BIGINT AS wait_id, NULL::BIGINT AS step
    FROM own
    UNION ALL
    SELECT own.run_id, own.rank, own.end_ns, -own.pre, CASE WHEN own.category <> 'annotation' THEN coalesce(parent.event_id, -1) END,
      CASE WHEN own.category = 'annotation' THEN coalesce(parent.event_id, -1) END, NULL, NULL, NULL
    FROM own
    LEFT JOIN own AS parent
      ON parent.run_id = own.run_id AND parent.rank = own.rank AND parent.event_id = own.next_id
    WHERE NOT own.is_outlasted
    UNION ALL
    SELECT run_id, rank, start_ns, 1, NULL, NULL, event_id, NULL, NULL
    FROM loading
    UNION ALL
    SELECT run_id, rank, end_ns, -1, NULL, NULL, -1, NULL, NULL
    FROM loading
    UNION ALL
    SELECT run_id, rank, start_ns, 1, NULL, NULL, NULL, event_id, NULL
    FROM awaited
    UNION ALL
    SELECT run_id, rank, end_ns, -1, NULL, NULL, NULL, -1, NULL
    FROM awaited
    UNION ALL
    SELECT run_id, rank, start_ns, 1, NULL, NULL, NULL, NULL, step
    FROM period
    UNION ALL
    SELECT run_id, rank, end_ns, -1, NULL, NULL, NULL, NULL, -1
    FROM period
  ),
  numbered AS (
    -- An empty OVER takes rows in their current order, without another sort. A rank starts with nothing in each layer.
    SELECT
      run_id,
      rank,
      start_ns,
      slice_id,
      annotation_id,
      data_id,
      wait_id,
      step,
      CASE WHEN (lag(run_id) OVER (), lag(rank) OVER ()) IS DISTINCT FROM (run_id, rank) THEN -1 END AS nothing,
      row_number() OVER () AS number,
      CASE WHEN (lead(run_id) OVER (), lead(rank) OVER ()) = (run_id, rank) THEN lead(start_ns) OVER () END AS until_ns
    FROM (
      SELECT run_id, rank, start_ns, place, slice_id, annotation_id, data_id, wait_id, step
      FROM point
      ORDER BY run_id, rank, start_ns, place
    ) AS ordered
  ),
  latest AS (
    -- The last owner so far in each layer: the maximum of number and owner, packed into one number.
    SELECT
      run_id,
      rank,
      start_ns,
      until_ns - start_ns AS segment_ns,
      max((number::HUGEINT << 64) + coalesce(slice_id, nothing) + 1) OVER (ROWS UNBOUNDED PRECEDING) AS slice_place,
      max((number::HUGEINT << 64) + coalesce(annotation_id, nothing) + 1) OVER (ROWS UNBOUNDED PRECEDING) AS annotation_place,
      max((number::HUGEINT << 64) + coalesce(data_id, nothing) + 1) OVER (ROWS UNBOUNDED PRECEDING) AS data_place,
      max((number::HUGEINT << 64) + coalesce(wait_id, nothing) + 1) OVER (ROWS UNBOUNDED PRECEDING) AS wait_place,
      max((number::HUGEINT << 64) + coalesce(step, nothing) + 1) OVER (ROWS UNBOUNDED PRECEDING) AS step_place
    FROM numbered
  ),
  part AS (
    SELECT
      run_id,
      rank,
      start_ns,
      segment_ns,
      nullif((step_place & 18446744073709551615)::BIGINT - 1, -1) AS step,
      nullif((data_place & 18446744073709551615)::BIGINT - 1, -1) AS data_id,
      nullif((slice_place & 18446744073709551615)::BIGINT - 1, -1) AS inner_id,
      nullif((annotation_place & 18446744073709551615)::BIGINT - 1, -1) AS annotation_id,
      CASE WHEN inner_id IS NULL THEN nullif((wait_place & 18446744073709551615)::BIGINT - 1, -1) END AS wait_id,
      coalesce(data_id, inner_id, wait_id, annotation_id) AS slice_id
    FROM latest
    WHERE segment_ns > 0
  )
SELECT
  part.run_id,
  part.rank,
  part.start_ns,
  part.segment_ns,
  part.step,
  CASE
    WHEN part.data_id IS NOT NULL THEN 'data_loading'
    WHEN part.wait_id IS NOT NULL THEN 'waiting'
    ELSE coalesce(own.category, 'unrecorded')
  END AS category,
  part.slice_id,
  coalesce(awaited.name, own.name) AS name
FROM part
LEFT JOIN awaited
  ON awaited.run_id = part.run_id
  AND awaited.rank = part.rank
  AND awaited.event_id = part.wait_id
  AND part.data_id IS NULL
LEFT JOIN own ON own.run_id = part.run_id AND own.rank = part.rank AND own.event_id = part.slice_id
