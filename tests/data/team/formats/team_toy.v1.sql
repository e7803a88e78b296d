-- /// tw
-- kind    = "format"
-- name    = "team_toy"
-- version = 1
-- summary = "Kernels of a toy profiler."
--
-- [tables.toy_kernel]
-- required = ["begin_us", "end_us", "gpu", "label VARCHAR"]
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  1 AS part, file_row, 'X' AS ph, 'kernel' AS category, label AS name, begin_us * 1000 AS ts_ns,
  (end_us - begin_us) * 1000 AS dur_ns, gpu AS device, 0 AS stream, gpu AS pid, 0 AS tid,
  {'device': gpu, 'stream': 0} AS arguments, others
FROM toy_kernel
