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
-- phase   = { type = "VARCHAR", null = true, doc = "Phase of the step: prefill, decode, mixed, diffusion or other. Null if the numbers of requests decide: prefill, decode or mixed." }
-- fields  = { type = "VARCHAR", doc = "What the numbers in the name are, in their order, separated by commas. sq and sk are sums of query and key tokens over the requests of a kind, sqsq and sqsk sums of the products per request." }
--
-- [changes]
-- 1 = "First version. Untested on real data: rules 3, 4 and 6 to 12, which follow the sources of xDiT, SGLang (4 and 6: detailed_annotations; 10: the target model of speculative decoding, and others) and TensorRT-LLM's PyTorch executor (11, and 12 before 2026)."
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
      2,
      '^execute_context_[0-9]+\([0-9]+\)_generation_[0-9]+\([0-9]+\)',
      NULL,
      'prefill_requests,prefill_sq,decode_requests,decode_sq'
    ),
    (3, '^execute_diffusion_[0-9]+_[0-9]+x[0-9]+', 'diffusion', 'number,height,width'),
    (
      4,
      '^step\[DECODE bs=[0-9]+ g_sq=[0-9]+ g_sqsq=[0-9]+ g_sqsk=[0-9]+ g_sk=[0-9]+',
      'decode',
      'decode_requests,decode_sq,decode_sqsq,decode_sqsk,decode_sk'
    ),
    (5, '^step\[DECODE bs=[0-9]+', 'decode', 'decode_requests'),
    (
      6,
      '^step\[EXTEND bs=[0-9]+ toks=[0-9]+ c_sq=[0-9]+ c_sqsq=[0-9]+ c_sqsk=[0-9]+ c_sk=[0-9]+',
      'prefill',
      'prefill_requests,tokens,prefill_sq,prefill_sqsq,prefill_sqsk,prefill_sk'
    ),
    (7, '^step\[EXTEND bs=[0-9]+ toks=[0-9]+', 'prefill', 'prefill_requests,prefill_sq'),
    (
      8,
      '^step\[MIXED bs=[0-9]+ c=[0-9]+ g=[0-9]+ c_sq=[0-9]+ c_sk=[0-9]+ c_sqsq=[0-9]+ c_sqsk=[0-9]+ g_sq=[0-9]+ g_sk=[0-9]+ g_sqsq=[0-9]+ g_sqsk=[0-9]+',
      NULL,
      'requests,prefill_requests,decode_requests,prefill_sq,prefill_sk,prefill_sqsq,prefill_sqsk,decode_sq,decode_sk,decode_sqsq,decode_sqsk'
    ),
    (9, '^step\[MIXED bs=[0-9]+', 'mixed', 'requests'),
    (10, '^step\[[A-Z_]+ bs=[0-9]+', 'other', 'requests'),
    (
      11,
      '^\[Executor\] _forward_step [0-9]+: [0-9]+ ctx reqs, [0-9]+ ctx tokens, [0-9]+ gen reqs',
      NULL,
      'number,prefill_requests,prefill_sq,decode_requests'
    ),
    (
      12,
      '^\[Executor\] _forward_step [0-9]+: [0-9]+ ctx reqs, [0-9]+ gen reqs',
      NULL,
      'number,prefill_requests,decode_requests'
    )
) AS rules (rule_id, pattern, phase, fields)
