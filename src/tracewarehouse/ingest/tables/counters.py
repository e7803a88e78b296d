"""The table `counters`: a value of a counter at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules

# JSON is read by DuckDB, so that a number means the same here as in a query over `events`.
_VALUES: Final = """
SELECT DISTINCT
  event_id,
  name,
  series,
  pid,
  tid,
  ts_ns,
  TRY_CAST(json_extract_string(args, pointer) AS DOUBLE) AS value
FROM (
  SELECT
    *,
    unnest(json_keys(args)) AS series,
    '/' || replace(replace(series, '~', '~0'), '/', '~1') AS pointer
  FROM given
  WHERE json_type(args) = 'OBJECT'
)
ORDER BY name NULLS LAST, series, ts_ns NULLS LAST, event_id
"""
SCHEMA: Final = pa.schema(
    {
        "event_id": pa.int64(),
        "name": pa.string(),
        "series": pa.string(),
        "pid": pa.string(),
        "tid": pa.string(),
        "ts_ns": pa.int64(),
        "value": pa.float64(),
    }
)


def counters(columns: Columns, rules: Rules) -> pa.Table:
    """A row per key of the arguments of every row of phase C, by name, key and time.

    `value` is null where it is no number. Of a key that comes twice in one object the first value counts.
    """
    rows = np.flatnonzero(columns.is_one_of("ph", ["C"]))
    if not len(rows):
        return SCHEMA.empty_table()
    times = columns.ints("ts_ns", rows)
    texts = {name: columns.texts(name, rows) for name in ("name", "pid", "tid", "args")}
    given = pa.table(
        {"event_id": rows, "ts_ns": pa.array(times.values, mask=~times.valid)}
        | {name: array.cast(pa.string()) for name, array in texts.items()}
    )
    return rules.query(_VALUES, given).cast(SCHEMA)
