-- /// tw
-- kind      = "table"
-- name      = "kernel_rules"
-- version   = 1
-- summary   = "Classifies GPU activities by name: the first matching rule applies, otherwise the category decides."
-- grain     = ["rule_id"]
-- order     = ["rule_id"]
-- transient = true
--
-- [columns]
-- rule_id  = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- category = { type = "VARCHAR", doc = "Category that the rule applies to; `uncategorized` for GPU activities without a category." }
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
    (10, 'kernel', '(?i)nccl', 'kernel', 'communication'),
    (11, 'kernel', '(?i)(^|[^o])rccl', 'kernel', 'communication'),
    (12, 'kernel', '(?i)hccl|hcom_', 'kernel', 'communication'),
    (13, 'kernel', '(?i)mscclpp|msccl', 'kernel', 'communication'),
    (14, 'kernel', '(?i)(nv|roc|open|i)shmem', 'kernel', 'communication'),
    (15, 'kernel', 'multimem_', 'kernel', 'communication'),
    (16, 'kernel', 'cross_device_reduce', 'kernel', 'communication'),
    (17, 'kernel', '(?i)(one|two)_?shot_?(all_?)?reduce', 'kernel', 'communication'),
    (18, 'kernel', '(?i)all_?reduce', 'kernel', 'communication'),
    (19, 'kernel', '(?i)all_?gather', 'kernel', 'communication'),
    (20, 'kernel', '(?i)reduce_?scatter', 'kernel', 'communication'),
    (21, 'kernel', '(?i)all_?to_?all', 'kernel', 'communication'),
    (22, 'kernel', '(?i)send_?recv', 'kernel', 'communication'),
    (23, 'kernel', '(?i)deep_?ep::', 'kernel', 'communication')
) AS rules (rule_id, category, pattern, activity, kind)
