-- /// tw
-- kind     = "table"
-- name     = "dtypes"
-- version  = 1
-- summary  = "Element size of each data type, by the names that profilers use."
-- grain    = ["dtype"]
-- order    = ["dtype"]
--
-- [columns]
-- dtype         = { type = "VARCHAR", doc = "Type name, in lower case, without `c10::`. bytes: the profiler recorded a size in bytes, but no element type." }
-- element_bytes = { type = "BIGINT", unit = "bytes", doc = "Bytes per element." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  dtype,
  element_bytes::BIGINT AS element_bytes
FROM (
  VALUES
    ('double', 8), ('float', 4), ('half', 2), ('bfloat16', 2),
    ('float8_e4m3fn', 1), ('float8_e5m2', 1), ('float8_e4m3fnuz', 1), ('float8_e5m2fnuz', 1),
    ('complex<double>', 16), ('complex<float>', 8), ('complexdouble', 16), ('complexfloat', 8),
    ('long', 8), ('long int', 8), ('int', 4), ('short', 2), ('short int', 2), ('char', 1), ('signed char', 1),
    ('byte', 1), ('bytes', 1), ('unsigned char', 1), ('bool', 1), ('uint16', 2), ('uint32', 4), ('uint64', 8)
) AS types (dtype, element_bytes)
