-- /// tw
-- kind     = "view"
-- name     = "rank_advice"
-- version  = 1
-- summary  = "Advice of `advice_rules` for the ranks of programs that do not use PyTorch, by finding rule."
-- requires = ["ranks@1", "advice_rules@1"]
-- grain    = ["run_id", "rank", "rule"]
-- order    = ["run_id", "rank", "rule"]
--
-- [columns]
-- run_id = { type = "VARCHAR", doc = "The run." }
-- rank   = { type = "INTEGER", doc = "The rank; those of PyTorch have no rows: also of PyTorch's trace formats, if no framework is known." }
-- rule   = { type = "VARCHAR", doc = "Name of the finding rule." }
-- advice = { type = "VARCHAR", doc = "What to try." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT ranks.run_id, ranks.rank, advice_rules.rule, advice_rules.advice
FROM ranks
JOIN advice_rules
  ON advice_rules.framework = CASE
    WHEN ranks.framework IS NOT NULL THEN ranks.framework
    WHEN ranks.source_format NOT IN ('nsys', 'nsys_report', 'rocpd', 'rocprofv3', 'rpd') THEN 'pytorch'
    WHEN regexp_matches(ranks.device_name, '(?i)amd|radeon|gfx') OR ranks.source_format NOT IN ('nsys', 'nsys_report') THEN 'hip'
    ELSE 'cuda'
  END
