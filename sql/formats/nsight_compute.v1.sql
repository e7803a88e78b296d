-- /// tw
-- kind    = "format"
-- name    = "nsight_compute"
-- version = 1
-- summary = "Nsight Compute: metrics of launches in base units, from CSV files in any locale."
--
-- [tables.given]
-- required = ["metric_id", "ID VARCHAR", "Metric_Name VARCHAR", "Metric_Unit VARCHAR", "Metric_Value VARCHAR"]
-- optional = [
--   "Kernel_Name VARCHAR", "Process_ID VARCHAR", "Device VARCHAR", "Stream VARCHAR", "Grid_Size VARCHAR",
--   "Block_Size VARCHAR", "Section_Name VARCHAR",
-- ]
--
-- [params]
-- decimal = { type = "VARCHAR", default = ".", doc = "The decimal separator that the numbers of the file follow." }
--
-- [changes]
-- 1 = "First version."
-- ///
-- The rows are in the order of `given`, one per metric, with texts as printed. `own_decimal` is the decimal separator
-- that a number shows: the first one of a file counts for all.
WITH trimmed AS (
  SELECT
    *, regexp_replace(Metric_Value, '^[\s\x0b\x1c-\x1f\x{85}\pZ]+|[\s\x0b\x1c-\x1f\x{85}\pZ]+$', '', 'g') AS shown,
    coalesce(regexp_replace(Metric_Unit, '^[\s\x0b\x1c-\x1f\x{85}\pZ]+|[\s\x0b\x1c-\x1f\x{85}\pZ]+$', '', 'g'), '') AS shown_unit
  FROM given
),
numbers AS (
  SELECT
    *,
    -- Thousands may also be separated by spaces, narrow ones included, or by apostrophes.
    if(
      regexp_full_match(shown, '(?i)[+-]?(?:\d+(?:[\s\pZ''\x{2019}]\d{3,})*(?:[.,]\d+(?:[\s\pZ''\x{2019}]\d{3,})*)*|inf|nan)(?:e[+-]?\d+(?:[\s\pZ''\x{2019}]\d{3,})*)?'),
      regexp_replace(shown, '[\s\pZ''\x{2019}]', '', 'g'), NULL
    ) AS number,
    regexp_replace(number, '[^.,]', '', 'g') AS signs,
    -- A single separator with groups of three digits behind it says nothing: 1,215 is 1215 or 1.215.
    CASE
      WHEN contains(signs, '.') AND contains(signs, ',') THEN right(signs, 1)
      WHEN length(signs) > 1 THEN translate(left(signs, 1), '.,', ',.')
      WHEN NOT regexp_full_match(number, '[+-]?[1-9]\d{0,2}[.,]\d{3}') THEN nullif(signs, '')
    END AS own_decimal
  FROM trimmed
),
read AS (
  SELECT
    *, if($decimal = ',', translate(number, ',.', '.,'), number) AS english,
    if(shown IN ('nan', '-nan') OR regexp_matches(english, '[.].*[.,]'), NULL, TRY_CAST(replace(english, ',', '') AS DOUBLE)) AS plain,
    split_part(shown_unit, '/', 1) AS amount, shown_unit[length(amount) + 2:] AS per,
    regexp_extract(amount, '^([KMGTk])(?:byte|inst|cycle|sector|request|wavefront|Hz|hz|thread|warp|block|bit)s?\b', 1) AS prefix,
    amount[length(prefix) + 1:] AS base, coalesce(MAP {'K': 1e3, 'M': 1e6, 'G': 1e9, 'T': 1e12, 'k': 1e3}[prefix], 1e0) AS factor,
    MAP {'nsecond': 1e0, 'usecond': 1e3, 'msecond': 1e6, 'second': 1e9, 'ns': 1e0, 'us': 1e3, 'ms': 1e6, 's': 1e9} AS ns_of,
    ns_of[per] AS per_ns, if(per = '', ns_of[base], NULL) AS time_ns,
    regexp_extract(Grid_Size, '^\s*\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?\s*$', ['x', 'y', 'z']) AS grid,
    regexp_extract(Block_Size, '^\s*\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?\s*$', ['x', 'y', 'z']) AS block
  FROM numbers
)
SELECT
  metric_id, TRY_CAST(ID AS BIGINT) AS launch, nullif(Kernel_Name, '') AS kernel, nullif(Process_ID, '') AS process,
  TRY_CAST(regexp_extract(Device, '^[\s\x0b\x1c-\x1f\x{85}\pZ]*(\d+)[\s\x0b\x1c-\x1f\x{85}\pZ]*$', 1) AS BIGINT) AS device,
  TRY_CAST(regexp_extract(Stream, '^[\s\x0b\x1c-\x1f\x{85}\pZ]*(\d+)[\s\x0b\x1c-\x1f\x{85}\pZ]*$', 1) AS BIGINT) AS stream,
  TRY_CAST(grid['x'] AS BIGINT) AS grid_x, TRY_CAST(grid['y'] AS BIGINT) AS grid_y, TRY_CAST(grid['z'] AS BIGINT) AS grid_z,
  TRY_CAST(block['x'] AS BIGINT) AS block_x, TRY_CAST(block['y'] AS BIGINT) AS block_y, TRY_CAST(block['z'] AS BIGINT) AS block_z,
  nullif(Section_Name, '') AS section, Metric_Name AS metric,
  -- Times are in ns, rates per second.
  CASE WHEN time_ns IS NOT NULL THEN 'ns' ELSE nullif(concat_ws('/', base, if(per_ns IS NULL, nullif(per, ''), 'second')), '') END AS unit,
  plain * CASE WHEN time_ns IS NOT NULL THEN time_ns WHEN per_ns IS NOT NULL THEN factor * 1e9 / per_ns ELSE factor END AS value,
  if(plain IS NULL AND shown NOT IN ('', 'n/a', 'N/A', '(!) n/a', 'nan', '-nan'), shown, NULL) AS text,
  [
    if(Grid_Size <> '' AND grid['x'] = '', 'grid: ' || Grid_Size, NULL),
    if(Block_Size <> '' AND block['x'] = '', 'block: ' || Block_Size, NULL)
  ] AS unusable, own_decimal
FROM read
