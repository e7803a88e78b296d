-- /// tw
-- kind      = "table"
-- name      = "flop_rules"
-- version   = 1
-- summary   = "Operators whose work is computed from their inputs: family, formula, and what each argument position means."
-- grain     = ["name"]
-- order     = ["name"]
-- transient = true
--
-- [columns]
-- rule_id     = { type = "INTEGER", unit = "id", doc = "The rule; several names can share one." }
-- name        = { type = "VARCHAR", doc = "Operator name, or its beginning." }
-- is_prefix   = { type = "BOOLEAN", doc = "True if all names that begin with it match." }
-- leaf_only   = { type = "BOOLEAN", doc = "True if the operator only counts without operators inside it." }
-- family      = { type = "VARCHAR", doc = "gemm, conv, attention, norm, softmax, elementwise, embedding, optimizer, copy or triton." }
-- formula     = { type = "VARCHAR", doc = "How FLOP and bytes follow from the inputs." }
-- first_input = { type = "INTEGER", unit = "id", doc = "Position of the first operand: the left matrix, the convolution's input, or the query." }
-- causal_flag = { type = "INTEGER", unit = "id", null = true, doc = "Position of the argument that makes attention causal." }
-- causal_mask = { type = "VARCHAR", null = true, doc = "Alignment of the causal mask where query and key lengths differ: top_left or bottom_right." }
-- window_at   = { type = "INTEGER", unit = "id", null = true, doc = "Position of the left size of a sliding window; the right size follows." }
-- note        = { type = "VARCHAR", doc = "What the rule counts, and what it does not." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  unnest(string_split(names, ' ')) AS name,
  is_prefix,
  leaf_only,
  family,
  formula,
  first_input,
  causal_flag,
  causal_mask,
  window_at,
  note
FROM (
  VALUES
    (1, 'aten::mm aten::bmm aten::_scaled_mm aten::_int_mm', FALSE, FALSE, 'gemm', 'matmul', 0, NULL, NULL, NULL, 'Two FLOP per multiply-add; no FLOP for scaling.'),
    (2, 'aten::addmm aten::addmm_ aten::baddbmm aten::baddbmm_ aten::_addmm_activation', FALSE, FALSE, 'gemm', 'matmul', 1, NULL, NULL, NULL, 'The addition of the first argument is not counted, as in PyTorch.'),
    (3, 'aten::addbmm aten::addbmm_', FALSE, FALSE, 'gemm', 'summed_matmul', 1, NULL, NULL, NULL, 'The products of a batch are summed: the result is written once.'),
    (4, 'aten::linear', FALSE, TRUE, 'gemm', 'linear', 0, NULL, NULL, NULL, 'The weight is transposed; usually an addmm inside counts instead.'),
    (5, 'aiter::gemm_a16w16 vllm::rocm_unquantized_gemm', FALSE, FALSE, 'gemm', 'linear', 0, NULL, NULL, NULL, 'The weight is transposed.'),
    (10, 'aten::convolution', FALSE, FALSE, 'conv', 'convolution', 0, NULL, NULL, NULL, 'Needs stride, padding and dilation. The bias is not counted.'),
    (11, 'aten::convolution_backward', FALSE, FALSE, 'conv', 'convolution_backward', 0, NULL, NULL, NULL, 'One forward convolution for each requested gradient of input and weight.'),
    (12, 'aten::cudnn_convolution_backward aten::miopen_convolution_backward', FALSE, FALSE, 'conv', 'old_convolution_backward', 0, NULL, NULL, NULL, 'Before PyTorch 1.11; without the recorded mask both gradients are assumed.'),
    (20, 'aten::_scaled_dot_product_flash_attention aten::_scaled_dot_product_flash_attention_for_cpu', FALSE, FALSE, 'attention', 'attention', 0, 4, 'top_left', NULL, 'Only visible pairs of a causal mask count.'),
    (21, 'aten::_scaled_dot_product_efficient_attention aten::_scaled_dot_product_cudnn_attention', FALSE, FALSE, 'attention', 'attention', 0, 6, 'top_left', NULL, 'A bias is neither counted nor read as a mask.'),
    (22, 'aten::_scaled_dot_product_fused_attention_overrideable', FALSE, FALSE, 'attention', 'attention', 0, 5, 'top_left', NULL, 'A bias is neither counted nor read as a mask.'),
    (23, 'aten::_scaled_dot_product_flash_attention_backward', FALSE, FALSE, 'attention', 'attention_backward', 1, 11, 'top_left', NULL, 'Model FLOP twice the forward; hardware FLOP with the recomputed scores.'),
    (24, 'aten::_scaled_dot_product_flash_attention_for_cpu_backward', FALSE, FALSE, 'attention', 'attention_backward', 1, 7, 'top_left', NULL, 'As the flash backward.'),
    (25, 'aten::_scaled_dot_product_efficient_attention_backward', FALSE, FALSE, 'attention', 'attention_backward', 1, 11, 'top_left', NULL, 'As the flash backward.'),
    (26, 'aten::_scaled_dot_product_cudnn_attention_backward', FALSE, FALSE, 'attention', 'attention_backward', 1, 14, 'top_left', NULL, 'As the flash backward.'),
    (27, 'aten::_scaled_dot_product_fused_attention_overrideable_backward', FALSE, FALSE, 'attention', 'attention_backward', 1, 13, 'top_left', NULL, 'As the flash backward.'),
    (30, 'flash_attn::_flash_attn_forward aiter::fmha_v3_fwd aiter::mha_fwd', FALSE, FALSE, 'attention', 'attention_by_length', 0, 5, 'bottom_right', 6, 'Layout batch, length, heads, depth. flash-attn aligns the mask bottom-right from 2.1 on.'),
    (31, 'flash_attn::_flash_attn_varlen_forward', FALSE, FALSE, 'attention', 'attention_varlen', 0, NULL, NULL, NULL, 'Only the maximum lengths are recorded: an upper bound.'),
    (32, 'flash_attn::_flash_attn_backward', FALSE, FALSE, 'attention', 'attention_by_length_backward', 1, 11, 'bottom_right', 12, 'As the flash backward, in the layout of flash-attn.'),
    (40, 'aten::native_layer_norm aten::native_group_norm aten::native_batch_norm aten::cudnn_batch_norm aten::miopen_batch_norm aten::_fused_rms_norm aiter::rms_norm aiter::rmsnorm aiter::add_rmsnorm aiter::rmsnorm2d_fwd_with_add_ck aiter::_groupnorm_run', FALSE, FALSE, 'norm', 'pointwise', 0, NULL, NULL, NULL, 'No FLOP by convention: limited by memory.'),
    (41, 'aten::native_layer_norm_backward aten::native_group_norm_backward aten::native_batch_norm_backward aten::cudnn_batch_norm_backward aten::miopen_batch_norm_backward aten::_fused_rms_norm_backward', FALSE, FALSE, 'norm', 'pointwise', 0, NULL, NULL, NULL, 'No FLOP by convention.'),
    (45, 'aten::_softmax aten::_log_softmax aten::_softmax_backward_data aten::_log_softmax_backward_data', FALSE, FALSE, 'softmax', 'pointwise', 0, NULL, NULL, NULL, 'No FLOP by convention.'),
    (50, 'aten::add aten::add_ aten::sub aten::sub_ aten::rsub aten::mul aten::mul_ aten::div aten::div_ aten::addcmul aten::addcmul_ aten::addcdiv aten::addcdiv_ aten::pow aten::pow_ aten::sqrt aten::sqrt_ aten::rsqrt aten::rsqrt_ aten::reciprocal aten::reciprocal_ aten::neg aten::neg_ aten::exp aten::exp_ aten::log aten::log_ aten::sin aten::cos aten::tanh aten::tanh_ aten::abs aten::square aten::sigmoid aten::sigmoid_ aten::gelu aten::gelu_ aten::silu aten::silu_ aten::relu aten::relu_ aten::clamp aten::clamp_ aten::clamp_min aten::clamp_min_ aten::clamp_max aten::threshold_ aten::leaky_relu aten::minimum aten::maximum aten::where aten::masked_fill aten::masked_fill_ aten::lerp aten::lerp_ aten::nan_to_num aten::erf aten::atan2', FALSE, FALSE, 'elementwise', 'pointwise', 0, NULL, NULL, NULL, 'No FLOP by convention.'),
    (51, 'aten::threshold_backward aten::gelu_backward aten::silu_backward aten::sigmoid_backward aten::tanh_backward aten::mse_loss_backward aten::leaky_relu_backward aten::native_dropout_backward aten::max_pool2d_with_indices_backward aten::avg_pool2d_backward aten::_adaptive_avg_pool2d_backward aten::nll_loss_backward', FALSE, FALSE, 'elementwise', 'pointwise', 0, NULL, NULL, NULL, 'No FLOP by convention.'),
    (52, 'aten::eq aten::ne aten::lt aten::le aten::gt aten::ge aten::logical_and aten::logical_or aten::logical_not aten::isnan aten::isinf', FALSE, FALSE, 'elementwise', 'comparison', 0, NULL, NULL, NULL, 'No FLOP by convention; one byte per result.'),
    (53, 'aten::sum aten::mean aten::max aten::min aten::amax aten::amin aten::argmax aten::prod aten::var aten::linalg_vector_norm aten::norm aten::any aten::all aten::mse_loss aten::cumsum aten::max_pool2d_with_indices aten::avg_pool2d aten::_adaptive_avg_pool2d aten::nll_loss_forward aten::topk aten::sort', FALSE, FALSE, 'elementwise', 'reduction', 0, NULL, NULL, NULL, 'No FLOP by convention; the size of the result is not recorded, so that the bytes are a lower bound.'),
    (54, 'aten::native_dropout', FALSE, FALSE, 'elementwise', 'dropout', 0, NULL, NULL, NULL, 'No FLOP by convention; writes a mask of one byte per element.'),
    (60, 'aten::copy_', FALSE, FALSE, 'copy', 'copy', 0, NULL, NULL, NULL, 'Reads the second argument, writes the first.'),
    (61, 'aten::fill_ aten::zero_ aten::normal_ aten::uniform_ aten::random_', FALSE, FALSE, 'copy', 'fill', 0, NULL, NULL, NULL, 'Writes the first argument.'),
    (62, 'aten::cat aten::_cat', FALSE, FALSE, 'copy', 'lists', 0, NULL, NULL, NULL, 'The element type of the list is not recorded: no bytes.'),
    (65, 'aten::embedding', FALSE, FALSE, 'embedding', 'lookup', 0, NULL, NULL, NULL, 'Reads the indices and the selected rows, writes the rows.'),
    (66, 'aten::index_select', FALSE, FALSE, 'embedding', 'lookup', 0, NULL, NULL, NULL, 'Along the first dimension; reads the indices and the selected rows, writes the rows.'),
    (67, 'aten::embedding_dense_backward', FALSE, FALSE, 'embedding', 'lookup_backward', 0, NULL, NULL, NULL, 'Reads the gradient and the indices; the size of the table is not recorded, so that the bytes are a lower bound.'),
    (70, 'aten::_fused_adam_ aten::_fused_adamw_', FALSE, FALSE, 'optimizer', 'lists', 0, NULL, NULL, NULL, 'The element type of the lists is not recorded: no bytes.'),
    (71, 'aten::_fused_sgd_ aten::_fused_adagrad_', FALSE, FALSE, 'optimizer', 'lists', 0, NULL, NULL, NULL, 'As fused Adam.'),
    (72, 'aten::_foreach_', TRUE, FALSE, 'optimizer', 'lists', 0, NULL, NULL, NULL, 'As fused Adam.'),
    (80, 'triton_', TRUE, FALSE, 'triton', 'compiled', 0, NULL, NULL, NULL, 'FLOP unknown; the sum of all tensor arguments, in which results and views cannot be distinguished, is an upper bound of the bytes.')
) AS rules (
  rule_id,
  names,
  is_prefix,
  leaf_only,
  family,
  formula,
  first_input,
  causal_flag,
  causal_mask,
  window_at,
  note
)
