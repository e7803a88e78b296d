"""Times are compressed further only where that makes them smaller."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tracewarehouse.contracts.contract import Column
from tracewarehouse.storage.pack import Encoding, encoding_of

_ROWS = 1 << 16
_RANDOM = np.random.default_rng(7)
# A step of 500 launches whose distances repeat, and distances without a pattern.
_REPEATED = np.tile(_RANDOM.integers(1, 50, 500) * 1_000, _ROWS // 500 + 1)[:_ROWS]
_ARBITRARY = _RANDOM.integers(1, 50_000, _ROWS)


def _encoding(distances: np.ndarray, rows: int = _ROWS) -> Encoding | None:
    times = pa.chunked_array([pa.array(np.cumsum(distances[:rows]))])
    return encoding_of(Column("ts_ns", "BIGINT", unit="ts", doc=""), times)


@pytest.mark.parametrize(("distances", "chosen"), [(_REPEATED, Encoding.TIMES), (_ARBITRARY, Encoding.DELTA)])
def test_further_compression_only_where_it_saves(distances: np.ndarray, chosen: Encoding) -> None:
    assert _encoding(distances) is chosen


def test_few_times_are_always_compressed_further() -> None:
    assert _encoding(_ARBITRARY, rows=1_000) is Encoding.TIMES
