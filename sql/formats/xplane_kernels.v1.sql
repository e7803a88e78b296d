-- /// tw
-- kind    = "format"
-- name    = "xplane_kernels"
-- version = 1
-- summary = "JAX and XLA: what the arguments of a GPU activity say about its operator, modules and work."
--
-- [tables.given]
-- optional = ["args VARCHAR"]
--
-- [changes]
-- 1 = "First version."
-- ///
-- In a path such as jit(f)/jit(main)/transpose(jvp(Model))/Dense_0/dot_general:, transformations are left out. On AMD GPUs
-- it is the name of the operation; without a path, XLA's operation and module count. The rows are in the order of `given`.
WITH said AS MATERIALIZED (
  SELECT
    row_number() OVER () AS number,
    json_extract_string(
      args,
      [
        '$."xplane.tf_op"', '$."xplane.hlo_category"', '$."xplane.hlo"', '$.flops', '$."bytes accessed"', '$."xplane.name"',
        '$."xplane.hlo_op"', '$."xplane.hlo_module"'
      ]
    ) AS words
  FROM given
),
known AS (  -- each once
  SELECT
    words,
    coalesce(nullif(nullif(split_part(words[1], ':', 1), 'XlaModule'), ''), if(contains(words[6], '/'), words[6], NULL)) AS given_scope,
    coalesce(
      given_scope,
      regexp_replace(words[8], '^jit_(.*)$', 'jit(\1)') || '/' || regexp_replace(words[7], '[.]\d+$', '')
    ) AS scope,
    list_filter(
      list_transform(
        string_split(scope, '/'),
        LAMBDA part: regexp_replace(part, '^(?:(?:transpose|jvp|vmap|remat|checkpoint)\()+(.*?)\)+$', '\1')
      ),
      LAMBDA part: part NOT IN ('', 'jit(main)', 'checkpoint', 'rematted_computation')
    ) AS parts,
    parts[-1] AS op, array_to_string(parts, ' > ') AS path,
    nullif(array_to_string(parts[:-2], ' > '), '') AS module_path,
    regexp_replace(module_path, '_\d+( > |$)', '\1', 'g') AS class_path,
    CASE
      WHEN contains(scope, 'rematted_computation') THEN 'recompute'
      WHEN contains(scope, 'transpose(') THEN 'backward'
      WHEN given_scope IS NOT NULL THEN 'forward'
    END AS pass,
    TRY_CAST(words[4] AS BIGINT) AS model_flop, model_flop AS hardware_flop,
    TRY_CAST(words[5] AS BIGINT) AS read_bytes, 0::BIGINT AS write_bytes,
    if(coalesce(model_flop, read_bytes) IS NULL, NULL, 'exact') AS bound,
    CASE
      WHEN regexp_matches(concat_ws(' ', words[2], op), 'dot|gemm') THEN 'gemm'
      WHEN contains(words[2], 'conv') OR starts_with(op, 'conv_') THEN 'conv'
      WHEN regexp_matches(words[2], 'copy|transpose|slice|concatenate') THEN 'copy'
      ELSE 'elementwise'
    END AS family,
    MAP {'f64': 'fp64', 'f32': 'fp32', 'bf16': 'bf16', 'f16': 'fp16', 's8': 'int8'}[
      regexp_extract(words[3], '= \(?([a-z]+[0-9]+)\[', 1)
    ] AS dtype,
    if(family IN ('gemm', 'conv'), dtype, NULL) AS compute_dtype,
    coalesce(dtype <> 'fp32', FALSE) AS dtype_known
  FROM (SELECT DISTINCT words FROM said)
)
SELECT known.* EXCLUDE (words, given_scope, scope, parts)
FROM said JOIN known ON known.words IS NOT DISTINCT FROM said.words
ORDER BY number
