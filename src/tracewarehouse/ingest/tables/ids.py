"""Ids of a profiler that pair rows, and the numbers that it writes where it has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Ints

# Of correlation and external ids: none, unset, and the largest numbers of 32 and 63 bits.
SENTINEL_IDS: Final = (0, -1, 2**32 - 1, 2**63 - 1)


def pairs(ids: Ints) -> NDArray[np.bool_]:
    """Whether a row has an id that other rows may share; negative ones never do."""
    return ids.valid & (ids.values > 0) & ~np.isin(ids.values, SENTINEL_IDS)
