"""Numbers for the ids of arrows: most are digits, so that the texts of millions need not be held together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.rows import local_codes, slabs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns

# Numbers below this stand for themselves; any other text gets one from here on.
_OTHER: Final = 1 << 38
_PLAIN: Final = "^[0-9]{1,12}$"
_SLAB_ROWS: Final = 1 << 18


def flow_numbers(columns: Columns, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """A number from 0 for the id and category (as in the file) of each row, -1 without an id.

    Rows without a category share one.
    """
    found = np.empty(len(rows), np.int64)
    odd: list[tuple[NDArray[np.int64], pa.Array]] = []
    for part in slabs(len(rows), _SLAB_ROWS):
        texts = columns.texts("flow_id", rows[part])
        found[part] = _plain(texts)
        other = np.flatnonzero(found[part] == _OTHER)
        if other.size:
            odd.append((other + part.start, texts.take(pa.array(other))))
    if odd:
        codes, _ = local_codes(pa.concat_arrays([texts for _, texts in odd]))
        found[np.concatenate([places for places, _ in odd])] = codes.astype(np.int64) + _OTHER
    category = columns.codes("raw_category", rows)
    count = len(category.words) + 1
    there = found >= 0
    found *= count
    found += category.codes
    found += 1
    found[~there] = -1
    return found


def _plain(texts: pa.Array) -> NDArray[np.int64]:
    """The number that each text is the digits of, -1 for null, `_OTHER` for any other text."""
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        selected = pc.match_substring_regex(texts, _PLAIN)
        numbers = pc.if_else(selected, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    values = pc.fill_null(numbers, _OTHER).to_numpy(zero_copy_only=False).copy()
    # What is not written as the number is written, is no such number.
    same = pc.fill_null(pc.equal(numbers.cast(pa.string()), texts), False)
    values[~same.to_numpy(zero_copy_only=False).astype(np.bool_)] = _OTHER
    values[(values < 0) | (values > _OTHER)] = _OTHER
    values[np.asarray(texts.is_null())] = -1
    return values  # type: ignore[no-any-return]
