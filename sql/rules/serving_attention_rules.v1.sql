-- /// tw
-- kind     = "table"
-- name     = "serving_attention_rules"
-- version  = 1
-- summary  = "Attention operators of serving engines, and where their input shapes show the number of heads."
-- grain    = ["rule_id"]
-- order    = ["rule_id"]
--
-- [columns]
-- rule_id = { type = "INTEGER", unit = "id", doc = "The rule." }
-- pattern = { type = "VARCHAR", doc = "Regular expression (RE2) for an operator with shapes and types (`op_sig`). Its groups: query heads, size of a head, key heads, type of the keys." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  pattern
FROM (
  VALUES
    -- Query and key: [tokens, heads, size].
    (1, '^vllm::unified_attention\S* \[\[\d+, ?(\d+), ?(\d+)\], ?\[\d+, ?(\d+), ?\d+\].*\] \["[^"]*", ?"([^"]*)"'),
    -- Query, workspace, output, pool of keys: [places, 1, heads, size].
    (
      2,
      'paged_attention_ragged\S* \[\[\d+, ?(\d+), ?(\d+)\], ?\[\d+\], ?\[[\d, ]+\], ?\[\d+, ?1, ?(\d+), ?\d+\].*\] \["[^"]*", ?"[^"]*", ?"[^"]*", ?"([^"]*)"'
    )
) AS rules (rule_id, pattern)
