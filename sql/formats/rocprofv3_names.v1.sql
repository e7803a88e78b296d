-- /// tw
-- kind    = "format"
-- name    = "rocprofv3_names"
-- version = 1
-- summary = "rocprofv3: the names of the operations of records in a JSON result, or the texts of markers."
--
-- [tables.records]
-- optional = ["kind", "operation", "correlation_id.internal"]
--
-- [tables.names]
-- optional = ["kind", "operation", "name VARCHAR"]
--
-- [tables.markers]
-- optional = ["correlation", "name VARCHAR"]
-- keys     = ["correlation"]
--
-- [changes]
-- 1 = "First version."
-- ///
-- Kinds that are not known have the operations of the first one.
SELECT coalesce(markers_by_correlation.name, names.name) AS name
FROM (
  SELECT
    file_row, operation, "correlation_id.internal" AS correlation,
    if(kind IS NULL OR kind IN (SELECT kind FROM names), kind, (SELECT min(kind) FROM names)) AS kind
  FROM records
) AS records
LEFT JOIN names USING (kind, operation)
LEFT JOIN markers_by_correlation USING (correlation)
ORDER BY records.file_row
