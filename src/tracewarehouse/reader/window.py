"""First start and last end of a trace: asked only of files that contend for one place."""

from __future__ import annotations

from pathlib import Path

from tracewarehouse.engine import connect
from tracewarehouse.reader.load import load

_WINDOW = """
SELECT
  TRY_CAST(any_value(base_ns) + round(min(ts) * 1000) AS BIGINT),
  TRY_CAST(any_value(base_ns) + round(max(ts + greatest(coalesce(dur, 0), 0)) * 1000) AS BIGINT)
FROM raw, header
WHERE ph = 'X' AND ts IS NOT NULL
"""


def window(path: Path) -> tuple[int | None, int | None]:
    """First start and last end of the slices in ns since the epoch; None where no event has a time."""
    con = connect()
    try:
        load(con, path, run_id="", rank=0, salt=b"", texts=False)
        start, end = con.execute(_WINDOW).fetchone() or (None, None)
    finally:
        con.close()
    return start, end
