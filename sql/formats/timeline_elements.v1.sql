-- /// tw
-- kind    = "format"
-- name    = "timeline_elements"
-- version = 1
-- summary = "Memory timelines of PyTorch: the rows of elements, which are four numbers each."
--
-- [tables.given]
-- required = ["element VARCHAR"]
--
-- [params]
-- actions    = { type = "VARCHAR", default = "", doc = "Torch's names of actions, from 1 on." }
-- categories = { type = "VARCHAR", default = "", doc = "Torch's names of categories, from 0 on." }
--
-- [changes]
-- 1 = "First version."
-- ///
-- The rows are in the order of `given`. An element in another form stays text.
WITH read AS (
  SELECT
    element, TRY_CAST(texts['time'] AS BIGINT) AS time, TRY_CAST(texts['action'] AS BIGINT) AS number,
    TRY_CAST(texts['bytes'] AS BIGINT) AS size, TRY_CAST(texts['category'] AS BIGINT) AS kind,
    list_count([time, number, size, kind]) = 4 AS is_change
  FROM (
    SELECT
      element,
      regexp_extract(element, '^\[(0|-?[1-9]\d*),(\d+),(0|-?[1-9]\d*),(\d+)\]$', ['time', 'action', 'bytes', 'category']) AS texts
    FROM given
  )
)
SELECT
  if(is_change AND time >= 0, time, NULL) AS ts_ns, if(is_change, string_split($actions, ' ')[number], NULL) AS action,
  if(is_change, size, NULL) AS bytes, if(is_change, string_split($categories, ' ')[TRY(kind + 1)], NULL) AS category,
  if(is_change AND time < 0, time, NULL) AS file_time_ns,
  if(is_change AND action IS NULL, number, NULL) AS file_action,
  if(is_change AND category IS NULL, kind, NULL) AS file_category, if(is_change, NULL, element) AS element
FROM read
