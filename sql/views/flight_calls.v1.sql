-- /// tw
-- kind     = "view"
-- name     = "flight_calls"
-- version  = 1
-- summary  = "Calls in flight recorder dumps in comparable form: collective without the backend, shapes and element types as text."
-- requires = ["flight_records@1"]
-- grain    = ["run_id", "rank", "record_id"]
-- order    = ["run_id", "rank", "record_id"]
--
-- [columns]
-- run_id         = { type = "VARCHAR", doc = "The run." }
-- rank           = { type = "INTEGER", doc = "The rank." }
-- record_id      = { type = "BIGINT", unit = "id", doc = "The recorder's number of the record." }
-- process_group  = { type = "VARCHAR", doc = "Name of the process group; empty if not recorded." }
-- group_desc     = { type = "VARCHAR", null = true, doc = "Description of the process group; null if it has none." }
-- group_ranks    = { type = "INTEGER[]", null = true, doc = "Ranks of the process group; null if the dump does not list them." }
-- collective_seq = { type = "BIGINT", unit = "id", null = true, doc = "Number of the collective in its process group; null for point-to-point operations." }
-- collective     = { type = "VARCHAR", null = true, doc = "all_reduce, all_gather, …, without the backend." }
-- state          = { type = "VARCHAR", null = true, doc = "scheduled, started or completed." }
-- created_ns     = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "When it was called, UTC." }
-- sizes          = { type = "VARCHAR", doc = "Shapes of inputs and outputs." }
-- dtypes         = { type = "VARCHAR", doc = "Element types of inputs and outputs." }
-- caller         = { type = "VARCHAR", null = true, doc = "Innermost frame outside of PyTorch." }
-- call           = { type = "VARCHAR", doc = "The call in words: all_gather #2 of group 1 (train.py:8 step)." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  record_id,
  coalesce(process_group, '') AS process_group,
  nullif(group_desc, 'undefined') AS group_desc,
  group_ranks,
  CASE WHEN is_p2p IS NOT TRUE THEN collective_seq END AS collective_seq,
  regexp_replace(profiling_name, '^[a-z_]+:', '') AS collective,
  state,
  created_ns,
  coalesce(input_sizes, '[]') || ' → ' || coalesce(output_sizes, '[]') AS sizes,
  coalesce(input_dtypes, '[]') || ' → ' || coalesce(output_dtypes, '[]') AS dtypes,
  caller,
  coalesce(regexp_replace(profiling_name, '^[a-z_]+:', ''), 'an unnamed operation')
  || coalesce(' #' || coalesce(collective_seq, p2p_seq), '')
  || ' of group '
  || coalesce(nullif(process_group, ''), 'unnamed')
  || coalesce(' (' || caller || ')', '') AS call
FROM flight_records
