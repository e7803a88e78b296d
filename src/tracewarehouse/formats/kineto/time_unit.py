"""Whether a file's times are microseconds, as they should be: some writers give nanoseconds and do not say so.

Two signs, each of which alone is enough: memory copies whose recorded bandwidth does not fit their bytes and
length, and times that no calendar of microseconds reaches but that are times of our days in nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.base import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import BatchColumns

RULE: Final = "time_unit"
_COPY: Final = "gpu_memcpy"
# The median of bytes over (bandwidth times length) is 1 to 2.4 where times are microseconds.
_LEAST_RATIO: Final = 0.1
_MOST_RATIO: Final = 10.0
_COPIES_KEPT: Final = 100_000
# Nanoseconds since the epoch of the years 2000 to 2099, as digits: too many for microseconds in 64 bits of ns.
_NS_OF_OUR_DAYS: Final = r"^(9[4-9][0-9]{16}|[123][0-9]{18}|40[0-9]{17})(\.[0-9]+)?$"


@dataclass
class TimeUnit:
    """Collects the signs, batch by batch."""

    late: int = 0
    timed: int = 0
    ratios: list[NDArray[np.float64]] = field(default_factory=list)
    _copies: int = 0

    def add_times(self, columns: BatchColumns) -> None:
        """Counts the times, and those that only make sense in nanoseconds."""
        if "ts" in columns.ints:
            self.timed += int(columns.ints["ts"][1].sum())
        texts = columns.texts.get("ts_text")
        if texts is None:
            return
        found = pc.fill_null(pc.match_substring_regex(texts, _NS_OF_OUR_DAYS), False)
        no_time = ~columns.ints["ts"][1] if "ts" in columns.ints else np.ones(columns.rows, np.bool_)
        self.late += int((found.to_numpy(zero_copy_only=False) & no_time).sum())

    def add_copies(self, batch: pa.RecordBatch) -> None:
        """Looks at the memory copies among activities."""
        category = batch.column("category")
        place = pc.index(category.dictionary, _COPY).as_py()
        if place < 0 or self._copies >= _COPIES_KEPT:
            return
        rows = pc.indices_nonzero(pc.fill_null(pc.equal(category.indices, place), False))
        columns = [batch.column(name).take(rows) for name in ("bytes", "bandwidth_bytes_per_ns", "dur_ns")]
        size, bandwidth, length = (
            pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) for column in columns
        )
        usable = (size > 0) & (bandwidth > 0) & (length > 0)
        self._copies += int(usable.sum())
        self.ratios.append(size[usable] / (bandwidth[usable] * length[usable]))

    def finding(self) -> Finding | None:
        """What is wrong with the unit of the times, if anything is."""
        if self.late > self.timed:
            example = "times are too late for microseconds, and of our days as nanoseconds"
            return Finding(RULE, self.late, f"{example}: ingest with --time-unit ns")
        ratios = np.concatenate(self.ratios) if self.ratios else np.zeros(0)
        if not ratios.size or _LEAST_RATIO <= (median := float(np.median(ratios))) <= _MOST_RATIO:
            return None
        times, what = (1 / median, "longer") if median < 1 else (median, "shorter")
        hint = ": ingest with --time-unit ns if its times are nanoseconds" if median < 1 else ""
        example = f"copies take {times:.0f} times {what} than their bandwidth and bytes say{hint}"
        return Finding(RULE, int(ratios.size), example)
