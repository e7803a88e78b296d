-- /// tw
-- kind     = "table"
-- name     = "fused_operator_names"
-- version  = 1
-- summary  = "Operators with underscores in their names, for splitting the names of kernels that Inductor fused."
-- grain    = ["name"]
-- order    = ["name"]
--
-- [columns]
-- name = { type = "VARCHAR", doc = "Operator name as Inductor writes it in the name of a kernel. Names without underscores need no row." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT name
FROM (
  VALUES
    ('_adaptive_avg_pool2d'), ('_adaptive_avg_pool2d_backward'), ('_embedding_bag'), ('_fused_adam'),
    ('_log_softmax'), ('_log_softmax_backward_data'), ('_native_batch_norm_legit'),
    ('_native_batch_norm_legit_functional'), ('_native_batch_norm_legit_no_training'), ('_scaled_mm'),
    ('_softmax'), ('_softmax_backward_data'), ('_to_copy'), ('_unsafe_index'), ('_unsafe_index_put'),
    ('_unsafe_view'), ('_scaled_dot_product_flash_attention'), ('_scaled_dot_product_efficient_attention'),
    ('_scaled_dot_product_cudnn_attention'), ('_flash_attention_forward'),
    ('adaptive_avg_pool2d'), ('adaptive_max_pool2d'), ('all_gather'), ('all_gather_into_tensor'), ('all_reduce'),
    ('all_to_all_single'), ('as_strided'), ('as_strided_scatter'), ('avg_pool2d'), ('avg_pool2d_backward'),
    ('bitwise_and'), ('bitwise_not'), ('bitwise_or'), ('bitwise_xor'), ('broadcast_tensors'), ('clamp_max'),
    ('clamp_min'), ('constant_pad_nd'), ('convert_element_type'), ('convolution_backward'), ('count_nonzero'),
    ('cross_entropy'), ('cross_entropy_loss'), ('div_mod'), ('embedding_backward'),
    ('embedding_dense_backward'), ('expand_as'), ('fill_diagonal'), ('flash_attention'), ('fmha_v3_bwd'),
    ('fmha_v3_fwd'), ('full_like'), ('fused_add_rms_norm'), ('gelu_backward'), ('grid_sampler_2d'),
    ('group_norm'), ('hardsigmoid_backward'), ('hardswish_backward'), ('hardtanh_backward'), ('index_add'),
    ('index_copy'), ('index_fill'), ('index_put'), ('index_select'), ('inductor_lookup_seed'),
    ('inductor_random'), ('inductor_seeds'), ('is_nonzero'), ('layer_norm'), ('leaky_relu'),
    ('leaky_relu_backward'), ('linalg_vector_norm'), ('log_softmax'), ('logical_and'), ('logical_not'),
    ('logical_or'), ('logical_xor'), ('low_memory_max_pool2d_with_offsets'), ('masked_fill'), ('masked_scatter'),
    ('max_pool2d_with_indices'), ('max_pool2d_with_indices_backward'), ('moe_forward'), ('mse_loss'),
    ('mse_loss_backward'), ('mul_backward'), ('multi_head_attention'), ('native_batch_norm'),
    ('native_batch_norm_backward'), ('native_dropout'), ('native_dropout_backward'), ('native_group_norm'),
    ('native_group_norm_backward'), ('native_layer_norm'), ('native_layer_norm_backward'), ('new_empty'),
    ('new_empty_strided'), ('new_full'), ('new_ones'), ('new_zeros'), ('nll_loss'), ('nll_loss_backward'),
    ('nll_loss_forward'), ('nll_loss2d_forward'), ('one_hot'), ('ones_like'), ('permute_copy'), ('pixel_shuffle'),
    ('prims_convert_element_type'), ('rand_like'), ('randn_like'), ('reduce_scatter'), ('reduce_scatter_tensor'),
    ('reflection_pad1d'), ('reflection_pad2d'), ('repeat_interleave'), ('replication_pad2d'), ('rms_norm'),
    ('rotary_embedding'), ('scalar_tensor'), ('scaled_dot_product_attention'), ('scatter_add'),
    ('scatter_reduce'), ('select_backward'), ('select_scatter'), ('sigmoid_backward'), ('silu_and_mul'),
    ('silu_backward'), ('slice_backward'), ('slice_scatter'), ('smooth_l1_loss'), ('softplus_backward'),
    ('split_with_sizes'), ('split_with_sizes_copy'), ('squeeze_copy'), ('tanh_backward'), ('threshold_backward'),
    ('topk_softmax'), ('unified_attention'), ('unified_attention_with_output'), ('unsqueeze_copy'),
    ('upsample_bilinear2d'), ('upsample_nearest2d'), ('var_mean'), ('view_as'), ('view_as_complex'),
    ('view_as_real'), ('view_copy'), ('wait_tensor'), ('where_self'), ('zeros_like')
) AS names (name)
