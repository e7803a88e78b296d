-- /// tw
-- kind    = "format"
-- name    = "execution_collectives"
-- version = 1
-- summary = "Execution traces of PyTorch: what nodes of collectives say, and their process groups."
--
-- [tables.given]
-- required = [
--   "place", "name VARCHAR", "values VARCHAR", "types VARCHAR", "collective_name VARCHAR", "pg_name VARCHAR", "pg_size",
--   "dtype VARCHAR",
-- ]
--
-- [changes]
-- 1 = "First version."
-- ///
-- `values` and `types` are the inputs of nodes, as JSON. The attributes of a node come first, then its inputs, whose
-- place is relative to the name of the collective: the first text behind number, process group and rank.
WITH said AS (
  SELECT * REPLACE (if(json_valid(values), values, NULL) AS values, if(json_valid(types), types, NULL) AS types) FROM given
),
listed AS (
  SELECT place, unnest(found) AS one, generate_subscripts(found, 1) AS number
  FROM (
    SELECT
      place, if(json_type(values, '$[0]') = 'VARCHAR', values ->> '$[0]', NULL) AS text,
      from_json(if(json_valid(text) AND json_type(text) = 'ARRAY', text, '[]'), '["JSON"]') AS found
    FROM said WHERE name = '## process_group:init ##' AND json_type(values) = 'ARRAY'
  )
),
-- Process groups by name, and by the number that nodes call them by in older releases.
groups AS (
  SELECT
    unnest([one -> '$.pg_name', if(json_type(one, '$.backend_id') IN ('BIGINT', 'UBIGINT'), one -> '$.backend_id', NULL)])::VARCHAR AS key,
    one ->> '$.pg_name' AS process_group,
    if(json_type(one, '$.group_size') = 'UBIGINT' AND one ->> '$.group_size' <> '0', TRY_CAST(one ->> '$.group_size' AS BIGINT), NULL) AS size,
    if(json_type(one, '$.ranks') = 'ARRAY' AND regexp_full_match(one ->> '$.ranks', '\[-?\d+(?:,-?\d+)*\]'), replace(one ->> '$.ranks', ',', ', '), NULL) AS ranks,
    place, number
  FROM listed WHERE json_type(one) = 'OBJECT' AND json_type(one, '$.pg_name') = 'VARCHAR'
),
known AS (FROM groups WHERE key IS NOT NULL QUALIFY row_number() OVER (PARTITION BY key ORDER BY place DESC, number DESC) = 1),
inputs AS (
  SELECT
    *, from_json(if(json_type(values) = 'ARRAY', values, '[]'), '["JSON"]') AS texts,
    from_json(if(json_type(types) = 'ARRAY', types, '[]'), '["JSON"]') AS kinds,
    list_filter(
      range(4, least(len(texts), len(kinds)) + 1),
      lambda each: kinds[each] = '"String"' AND json_type(texts[each]) = 'VARCHAR' AND texts[each] <> '""'
    )[1] AS name_at,
    texts[name_at] ->> '$' AS called, if(json_type(texts[name_at - 3]) = 'ARRAY', texts[name_at - 3] -> '$[0]', texts[name_at - 3]) AS number,
    texts[name_at - 2] AS own,
    coalesce(pg_name, if(json_type(own) = 'ARRAY' AND json_type(own, '$[0]') = 'VARCHAR', own ->> '$[0]', NULL)) AS named,
    if(named IS NOT NULL, to_json(named), if(json_type(own) IN ('BIGINT', 'UBIGINT'), own, NULL))::VARCHAR AS key
  FROM said WHERE name = 'record_param_comms'
)
SELECT
  inputs.place, coalesce(nullif(collective_name, ''), called) AS collective, coalesce(named, known.process_group) AS process_group,
  coalesce(pg_size, size) AS group_size, ranks AS group_ranks,
  if(json_type(inputs.number) = 'UBIGINT', TRY_CAST(inputs.number ->> '$' AS BIGINT), NULL) AS collective_seq, nullif(inputs.dtype, '') AS dtype
FROM inputs LEFT JOIN known USING (key)
ORDER BY inputs.place
