-- /// tw
-- kind      = "table"
-- name      = "advice_rules"
-- version   = 1
-- summary   = "What to try about a finding in programs that do not use PyTorch; the rules themselves have the advice for PyTorch."
-- grain     = ["rule", "framework"]
-- order     = ["rule", "framework"]
--
-- [columns]
-- rule      = { type = "VARCHAR", doc = "Name of the finding rule." }
-- framework = { type = "VARCHAR", doc = "jax, cuda (CUDA C++ and others on NVIDIA GPUs) or hip (the same on AMD GPUs)." }
-- advice    = { type = "VARCHAR", doc = "What to try." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule,
  unnest(frameworks) AS framework,
  replace(advice, '{api}', CASE framework WHEN 'hip' THEN 'hip' ELSE 'cuda' END) AS advice
FROM (
  VALUES
    ('allocator_calls', ['cuda', 'hip'], 'Allocate before the loop and keep the memory, or use a pool: {api}MallocAsync and {api}FreeAsync do not stall the device.'),
    ('allocator_calls', ['jax'], 'Let the allocator keep its memory: do not set XLA_PYTHON_CLIENT_ALLOCATOR=platform, and donate buffers (donate_argnums).'),
    ('blocking_copies', ['cuda', 'hip'], 'Copy from and to pinned memory ({api}HostAlloc) with {api}MemcpyAsync on a separate stream, and wait for an event where the data is needed.'),
    ('blocking_copies', ['jax'], 'Keep arrays on the device between steps, and fetch results (jax.device_get, float(x)) one step later.'),
    ('blocking_syncs', ['cuda', 'hip'], 'Replace {api}DeviceSynchronize in the loop by events ({api}EventRecord, {api}StreamWaitEvent), and read results one iteration later.'),
    ('blocking_syncs', ['jax'], 'Do not call block_until_ready, print arrays or convert them to Python values in each step.'),
    ('fragmentation', ['cuda', 'hip'], 'Allocate large buffers once, or use the stream-ordered pool of the driver ({api}MallocAsync).'),
    ('fusible_chain', ['cuda', 'hip'], 'Fuse these kernels into one that keeps the intermediate values in registers.'),
    ('fusible_chain', ['jax'], 'Put these operations into one jitted function, so that XLA fuses them.'),
    ('host_blocked', ['cuda', 'hip'], 'Decide on the device, or copy the value with {api}MemcpyAsync to pinned memory and read it one iteration later.'),
    ('host_blocked', ['jax'], 'Keep decisions on the device (lax.cond, lax.while_loop), and read values one step later.'),
    ('host_bound', ['cuda'], 'Look at what the launching thread does there: sample it (nsys profile --sample=process-tree, perf), move the work to another thread, or overlap it with launches of earlier work.'),
    ('host_bound', ['hip'], 'Look at what the launching thread does there: sample it (perf), move the work to another thread, or overlap it with launches of earlier work.'),
    ('host_bound', ['jax'], 'Move what the host does in these gaps out of the loop or into the jitted function, and check for dispatch of many small functions. If nothing that was recorded explains them, record with the Python tracer.'),
    ('host_copies', ['cuda', 'hip', 'jax'], 'Keep one memory layout and type, and write results into buffers that are allocated once.'),
    ('host_data_loading', ['cuda', 'hip', 'jax'], 'Load and decode input ahead of time, in other threads or processes, or do less work per sample.'),
    ('host_operators', ['cuda', 'hip', 'jax'], 'Check the sizes of its inputs and the number of threads, and whether a library function or a lower precision does the same work faster.'),
    ('input_bound', ['cuda', 'hip', 'jax'], 'Load and decode input ahead of time, in other threads or processes, and copy it to the device while the device computes.'),
    ('launch_bound', ['cuda', 'hip'], 'Record the launches as a graph ({api}StreamBeginCapture, {api}GraphLaunch), fuse small kernels, or give each kernel more work.'),
    ('launch_bound', ['jax'], 'Put more of the step into one jitted function (lax.scan over steps), or give each call more work.'),
    ('layout_conversions', ['cuda', 'hip', 'jax'], 'Keep tensors in the layout that the convolutions use (NHWC), so that the library does not convert them.'),
    ('low_roofline_hot_ops', ['cuda', 'hip', 'jax'], 'Look for a faster implementation: a library kernel, another memory layout, larger batches.'),
    ('memory_growth', ['cuda', 'hip', 'jax'], 'Look for buffers that are allocated in each iteration and never freed.'),
    ('pageable_copies', ['cuda', 'hip'], 'Allocate the host memory with {api}HostAlloc, or pin it ({api}HostRegister), and copy with {api}MemcpyAsync.'),
    ('pageable_copies', ['jax'], 'Prefetch inputs to the device (jax.device_put of the next batch), so that the copy overlaps with computation.'),
    ('recompilation', ['cuda', 'hip'], 'Compile kernels once and keep them: cache modules by their parameters.'),
    ('recompilation', ['jax'], 'Find out what recompiles (jax.log_compiles): keep shapes and static arguments the same in every step.'),
    ('slow_elementwise', ['cuda', 'hip', 'jax'], 'Access memory contiguously and with vector types, with enough blocks to fill the device, and fuse the operation with its neighbors.'),
    ('startup', ['cuda'], 'Leave these iterations out: warm up before recording. To start faster, load modules early (CUDA_MODULE_LOADING=EAGER).'),
    ('startup', ['hip'], 'Leave these iterations out: warm up before recording. To start faster, load modules early (HIP_ENABLE_DEFERRED_LOADING=0).'),
    ('tensor_cores', ['cuda'], 'Use fp16, or from A100 on bf16 or TF32, in the library (cublasGemmEx with a compute type that allows it), with sizes that are multiples of 8.'),
    ('tensor_cores', ['jax'], 'Compute in bfloat16, or allow TF32 (jax.default_matmul_precision).')
) AS rules (rule, frameworks, advice)
