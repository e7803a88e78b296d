-- /// tw
-- kind     = "analysis"
-- name     = "compiled_kernels"
-- version  = 1
-- summary  = "Kernels that torch.compile (Inductor) or Triton generated: the operators fused into each, and its source file."
-- requires = ["kernels@1", "kernels_attributed@1", "events@1", "fused_operator_names@1"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank", "name", "kernel_hash"]
-- per      = "window"
-- order    = ["run_id", "rank", "-gpu_sum_ns", "name", "kernel_hash"]
--
-- [columns]
-- run_id          = { type = "VARCHAR", doc = "The run. Kernels count if their operator records a Triton kernel, or by their name (triton_poi_fused_…, triton_red_fused_…)." }
-- rank            = { type = "INTEGER", doc = "The rank." }
-- name            = { type = "VARCHAR", doc = "Kernel name without suffixes such as `.kd`." }
-- kernel_hash     = { type = "VARCHAR", null = true, doc = "Hash of the source code, as recorded; null, like the columns that the operator records, if the trace has no such operator (old versions, graph replays whose capture is in another run)." }
-- template        = { type = "VARCHAR", null = true, doc = "Kind of code by its name: pointwise, reduction, persistent reduction, foreach or template (GEMM, convolution, attention). Null for a hand-written kernel." }
-- source_ops      = { type = "VARCHAR", null = true, doc = "Operators fused into it, separated by commas, each once; which call of an operator it was is not recorded. An operator with underscores in its name that `fused_operator_names` does not list appears in parts. Null if there are none in its name." }
-- source_evidence = { type = "VARCHAR", null = true, doc = "Where source_ops are from: from the kernel's name." }
-- region          = { type = "VARCHAR", null = true, doc = "The compiled region that launched it (`Torch-Compiled Region: 0/0`); null if there are several." }
-- count           = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Number of kernels." }
-- gpu_sum_ns      = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of their durations." }
-- kernel_file     = { type = "VARCHAR", null = true, doc = "File with the generated code on the machine that ran it; null if there are several." }
-- kernel_backend  = { type = "VARCHAR", null = true, doc = "Backend as recorded: triton." }
-- num_warps       = { type = "BIGINT", null = true, unit = "count", doc = "Warps per block; null if it varies." }
-- num_stages      = { type = "BIGINT", null = true, unit = "count", doc = "Stages of software pipelining; null if it varies." }
-- kernel_kwargs   = { type = "VARCHAR", null = true, doc = "Tuned block sizes, such as XBLOCK=1024; null if they vary." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  launcher AS (
    SELECT
      run_id,
      rank,
      event_id,
      args ->> '$.kernel_hash' AS kernel_hash,
      args ->> '$.kernel_file' AS kernel_file,
      args ->> '$.kernel_backend' AS kernel_backend,
      TRY_CAST(args ->> '$.num_warps' AS BIGINT) AS num_warps,
      TRY_CAST(args ->> '$.num_stages' AS BIGINT) AS num_stages,
      args ->> '$.kernel_kwargs' AS kernel_kwargs
    FROM events
    WHERE category = 'cpu_op' AND contains(args::VARCHAR, '"kernel_backend"')
  ),
  kernel AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      regexp_replace(coalesce(kernels.name, ''), '( \[clone [^\]]*\]|\.kd)+$', '') AS name,
      kernels.dur_ns,
      CASE WHEN attributed.op_run = kernels.run_id::VARCHAR THEN attributed.op_id END AS op_id,
      regexp_extract(attributed.path_sig, 'Torch-Compiled Region: [^ ]+') AS region
    FROM kernels
    JOIN kernels_attributed AS attributed USING (run_id, rank, event_id)
    WHERE kernels.activity = 'kernel'
  ),
  compiled AS (
    SELECT
      kernel.run_id,
      kernel.rank,
      kernel.name,
      kernel.dur_ns,
      nullif(kernel.region, '') AS region,
      launcher.kernel_hash,
      launcher.kernel_file,
      launcher.kernel_backend,
      launcher.num_warps,
      launcher.num_stages,
      launcher.kernel_kwargs
    FROM kernel
    LEFT JOIN launcher
      ON launcher.run_id = kernel.run_id AND launcher.rank = kernel.rank AND launcher.event_id = kernel.op_id
    WHERE launcher.kernel_backend IS NOT NULL OR regexp_matches(kernel.name, '^triton_[a-z]+_fused_')
  ),
  splitter AS (
    -- Longer names first: of several that fit, the longest is the operator.
    SELECT '(' || string_agg(name, '|' ORDER BY length(name) DESC, name) || '|_?[A-Za-z0-9]+)(?:_|$)' AS pattern
    FROM fused_operator_names
  ),
  parsed AS (
    SELECT
      distinct_name.name,
      CASE regexp_extract(distinct_name.name, '^triton_([a-z]+)_fused_', 1)
        WHEN 'poi' THEN 'pointwise'
        WHEN 'red' THEN 'reduction'
        WHEN 'per' THEN 'persistent reduction'
        WHEN 'for' THEN 'foreach'
        WHEN 'tem' THEN 'template'
      END AS template,
      nullif(
        array_to_string(
          list_distinct(
            regexp_extract_all(
              regexp_extract(distinct_name.name, '^triton_[a-z]+_fused_(.+)_[0-9]+$', 1),
              splitter.pattern,
              1
            )
          ).list_sort(),
          ', '
        ),
        ''
      ) AS source_ops
    FROM (
      SELECT DISTINCT name
      FROM compiled
    ) AS distinct_name
    CROSS JOIN splitter
  )
SELECT
  compiled.run_id,
  compiled.rank,
  compiled.name,
  compiled.kernel_hash,
  any_value(parsed.template) AS template,
  any_value(parsed.source_ops) AS source_ops,
  CASE WHEN any_value(parsed.source_ops) IS NOT NULL THEN 'from the kernel''s name' END AS source_evidence,
  CASE WHEN count(DISTINCT compiled.region) = 1 THEN min(compiled.region) END AS region,
  count(*) AS count,
  sum(compiled.dur_ns)::BIGINT AS gpu_sum_ns,
  CASE WHEN count(DISTINCT compiled.kernel_file) = 1 THEN min(compiled.kernel_file) END AS kernel_file,
  min(compiled.kernel_backend) AS kernel_backend,
  CASE WHEN count(DISTINCT compiled.num_warps) = 1 THEN min(compiled.num_warps) END AS num_warps,
  CASE WHEN count(DISTINCT compiled.num_stages) = 1 THEN min(compiled.num_stages) END AS num_stages,
  CASE WHEN count(DISTINCT compiled.kernel_kwargs) = 1 THEN min(compiled.kernel_kwargs) END AS kernel_kwargs
FROM compiled
JOIN parsed USING (name)
GROUP BY compiled.run_id, compiled.rank, compiled.name, compiled.kernel_hash
