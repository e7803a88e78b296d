-- /// tw
-- kind     = "table"
-- name     = "phase_rules"
-- version  = 1
-- summary  = "Names of annotations with which serving engines mark a step of inference, and what the numbers in them mean."
-- grain    = ["rule_id"]
-- order    = ["rule_id"]
--
-- [columns]
-- rule_id = { type = "INTEGER", unit = "id", doc = "The rule; the lowest one that matches a name applies." }
-- pattern = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the name." }
-- phase   = { type = "VARCHAR", null = true, doc = "Phase of the step: prefill, decode, diffusion or other. Null if the numbers of requests decide: prefill, decode or mixed." }
-- fields  = { type = "VARCHAR", doc = "What the numbers in the name are, in their order, separated by commas. sq and sk are sums of query and key tokens over the requests of a kind, sqsq and sqsk sums of the products per request." }
--
-- [changes]
-- 1 = "First version. Rules 2, 4 and 5 are untested on real data."
-- ///
SELECT
  rule_id,
  pattern,
  phase,
  fields
FROM (
  VALUES
    (
      1,
      '^execute_[0-9]+_context_[0-9]+\(sq[0-9]+sk[0-9]+sqsq[0-9]+sqsk[0-9]+\)_generation_[0-9]+\(sq[0-9]+sk[0-9]+sqsq[0-9]+sqsk[0-9]+\)',
      NULL,
      'tokens,prefill_requests,prefill_sq,prefill_sk,prefill_sqsq,prefill_sqsk,decode_requests,decode_sq,decode_sk,decode_sqsq,decode_sqsk'
    ),
    (
      6,
      '^execute_context_[0-9]+\([0-9]+\)_generation_[0-9]+\([0-9]+\)',
      NULL,
      'prefill_requests,prefill_sq,decode_requests,decode_sq'
    ),
    (2, '^execute_diffusion_[0-9]+_[0-9]+x[0-9]+', 'diffusion', 'number,height,width'),
    (3, '^step\[DECODE bs=[0-9]+', 'decode', 'decode_requests'),
    (4, '^step\[EXTEND bs=[0-9]+ toks=[0-9]+', 'prefill', 'prefill_requests,prefill_sq'),
    (5, '^step\[[A-Z_]+ bs=[0-9]+', 'other', 'requests')
) AS rules (rule_id, pattern, phase, fields)
