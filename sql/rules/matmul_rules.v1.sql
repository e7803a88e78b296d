-- /// tw
-- kind      = "table"
-- name      = "matmul_rules"
-- version   = 1
-- summary   = "Whether a GEMM or convolution kernel on an NVIDIA GPU uses tensor cores, by name; the first matching rule applies."
-- grain     = ["rule_id"]
-- order     = ["rule_id"]
-- transient = true
--
-- [columns]
-- rule_id           = { type = "INTEGER", unit = "id", doc = "Position in the order; lower comes first." }
-- pattern           = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the name." }
-- uses_tensor_cores = { type = "BOOLEAN", doc = "True if the kernel runs on tensor cores. For names that match no rule it is unknown." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule_id,
  pattern,
  uses_tensor_cores
FROM (
  VALUES
    (1, '_ffma|_simt_', FALSE),
    (2, '(?i)tensorop|wmma|gmma|tf32|xmma\w*_(bf16|f16|e4m3|e5m2|i8)|nvjet|(^|[_:])(flash|fmha)', TRUE),
    (3, '[shibf](884|1688|8816|16816|16832|161616|64x\d+x\d+)', TRUE),
    (4, '^(maxwell|pascal|volta|turing|ampere|hopper|sm\d+)_(fp16_|bf16_)?sgemm_', FALSE),
    (5, '_scudnn_', FALSE),
    (6, '(im|ex)plicit_convolve_sgemm|convolve_common_engine_float', FALSE),
    (7, '(dgrad|wgrad)\w*_engine<float|winograd', FALSE)
) AS rules (rule_id, pattern, uses_tensor_cores)
