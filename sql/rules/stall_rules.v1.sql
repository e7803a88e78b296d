-- /// tw
-- kind    = "table"
-- name    = "stall_rules"
-- version = 1
-- summary = "Host slices that stall launches, by name: first calls of a runtime, compilation, and allocation in the driver."
-- grain   = ["what"]
-- order   = ["what"]
--
-- [columns]
-- what          = { type = "VARCHAR", doc = "first_call, compilation (also the recording of a graph) or allocation." }
-- pattern       = { type = "VARCHAR", doc = "Regular expression (RE2), searched anywhere in the name." }
-- min_ns        = { type = "BIGINT", unit = "ns", doc = "Shorter slices do not count." }
-- min_share     = { type = "DOUBLE", unit = "ratio", null = true, doc = "A tenth of min_ns is enough for slices that take this share of the recording." }
-- median_factor = { type = "BIGINT", unit = "count", null = true, doc = "How many times the median of the later calls of that name in its process it takes; also twice their 95 % quantile." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  what,
  pattern,
  min_ns::BIGINT AS min_ns,
  min_share::DOUBLE AS min_share,
  median_factor::BIGINT AS median_factor
FROM (
  VALUES
    ('first_call', '^(cu|hip|nv|nccl|rccl)', 10000000, 0.05, 20),
    ('compilation', 'dynamo_timed|: (_compile|compile_inner|compile_fx_inner|compile_to_module|_record)$|(?i)triton\.?compile|backend_compile|XlaCompile|nvrtcCompile|hiprtcCompile|capture_graph|graph_capture', 1000000, NULL, NULL),
    ('allocation', '^(cuda|hip)(Malloc|Free)(Host|Managed|Pitch|Array|3D)?$|^(cuda|hip)Host(Alloc|Malloc|Free)$', 100000, NULL, NULL)
) AS rules (what, pattern, min_ns, min_share, median_factor)
