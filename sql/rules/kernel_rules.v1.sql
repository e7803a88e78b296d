-- /// tw
-- kind      = "table"
-- name      = "kernel_rules"
-- version   = 1
-- summary   = "Classifies GPU activities by the name of the operator that launched them, then by their own: the first matching rule applies, otherwise the category decides."
-- grain     = ["rule_id"]
-- order     = ["rule_id"]
-- transient = true
--
-- [columns]
-- rule_id  = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- category = { type = "VARCHAR", doc = "Category that the rule applies to; `uncategorized` for GPU activities without a category, `operator` for kernels by the name of the operator that launched them, which comes first." }
-- pattern  = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the name." }
-- activity = { type = "VARCHAR", doc = "kernel, memcpy, memset or other." }
-- kind     = { type = "VARCHAR", doc = "computation, communication, memory or other." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  category,
  pattern,
  activity,
  kind
FROM (
  VALUES
    (1, 'uncategorized', '(?i)^(mem)?cpy|^copy|memcpy|^sdma', 'memcpy', 'memory'),
    (2, 'uncategorized', '(?i)^fill ?buffer|^memset', 'memset', 'memory'),
    (3, 'mtia_ccp_events', '^dma_request$', 'memcpy', 'memory'),
    (4, 'mtia_ccp_events', '^event_(wait|record)$', 'other', 'other'),
    (9, 'kernel', '^CUDA graph [0-9?]+$', 'other', 'other'),
    (10, 'kernel', '^(void )?(triton_[a-z0-9]+_(fused|tem)|triton_(fused|tem)_|cpp_fused_|at::native::|cutlass::|cute::|cub::)', 'kernel', 'computation'),
    (11, 'kernel', '(?i)(nccl|oneccl|hccl|hcom_|mscclpp|msccl)|(^|[^o])rccl', 'kernel', 'communication'),
    (12, 'kernel', '(?i)(nv|roc|open|i)shmem', 'kernel', 'communication'),
    (13, 'kernel', '(?i)(deep_?ep|hybrid_?ep|pplx|uccl|quickreduce|symmetric_memory|symm_mem)::', 'kernel', 'communication'),
    (14, 'kernel', '(^|::)Ep(Dispatch|Combine)[A-Z]', 'kernel', 'communication'),
    (15, 'kernel', '(?i)user_?buffers|(^|[^a-z])ub_(ag|rs|ar)_', 'kernel', 'communication'),
    (16, 'kernel', '^(void )?\(anonymous namespace\)::barrier_kernel', 'kernel', 'communication'),
    (17, 'kernel', '(?i)^(\(anonymous namespace\)|[^<(])*(multimem_|cross_device_|(one|two)_?shot_?(all_?)?reduce)', 'kernel', 'communication'),
    (18, 'kernel', '(?i)^(\(anonymous namespace\)|[^<(])*(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|send_?recv)', 'kernel', 'communication'),
    (19, 'kernel', '(?i)^(\(anonymous namespace\)|[^<(])*((^|[^a-z])a2a_|moe_?a2a|moe_?comm::)', 'kernel', 'communication'),
    (30, 'operator', '^(_?c10d(_functional(_autograd)?)?|mori|deep_ep|pplx|_C_custom_ar)::', 'kernel', 'communication'),
    (31, 'operator', '(?i)^(vllm|sgl_kernel|sglang|aiter|trtllm|flashinfer|symm_mem)::(multimem_|(inplace_|outplace_)?(one_shot_|two_shot_|custom_)?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all))', 'kernel', 'communication')
) AS rules (rule_id, category, pattern, activity, kind)
