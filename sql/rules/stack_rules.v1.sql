-- /// tw
-- kind      = "table"
-- name      = "stack_rules"
-- version   = 1
-- summary   = "What an allocation is for, by the frames of its call stack: the first rule that matches any frame applies."
-- grain     = ["rule_id"]
-- order     = ["rule_id"]
-- transient = true
--
-- [columns]
-- rule_id  = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- category = { type = "VARCHAR", doc = "backward, optimizer, collective, forward, data or setup." }
-- pattern  = { type = "VARCHAR", doc = "Regular expression (RE2) for `file:function`." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  category,
  pattern
FROM (
  VALUES
    (1, 'optimizer', 'torch/optim/|:Optimizer\.step|:_multi_tensor_|:optimizer_step$'),
    (2, 'backward', 'torch/autograd/.*:(backward|_engine_run_backward|apply)$|torch/_tensor\.py:backward$|torch::autograd::(Engine|Node|generated)|:backward$'),
    (3, 'collective', 'torch/distributed/|c10d::|ProcessGroup'),
    (4, 'setup', ':__init__$|:reset_parameters$|torch/nn/modules/module\.py:(_apply|to|cuda)$|:load_state_dict$'),
    (5, 'forward', 'torch/nn/(modules|functional)|:forward(_[0-9]+)?$|:_call_impl$'),
    (6, 'data', 'torch/utils/data/|:pin_memory$|:collate')
) AS rules (rule_id, category, pattern)
