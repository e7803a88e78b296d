"""What HTA's critical path takes waits for events to be about: launches before the record, after the wait."""

from __future__ import annotations

from collections.abc import Iterator, Set

import polars as pl

from witness.hta.frame import Frame
from witness.hta.rules import Fails
from witness.hta.spans import order
from witness.hta.streams import LAUNCHES

RECORD, WAIT_CALL, WAIT_ROW = "cudaEventRecord", "cudaStreamWaitEvent", "Stream Wait Event"
COLUMNS = ("number", "index", "correlation", "pid", "tid", "gpu_pid", "on", "ts")


class Waits:
    """`before`: by id of a record call the launch before it; `after`: by wait call the launch after it.

    Launches are indexes of calls, -1 where there is none; None where HTA does not look.
    """

    def __init__(self, frame: Frame, names: Set[str]) -> None:
        self.frame = frame
        self.linked = frame.gpu.filter(pl.col("partner") > 0).select(partner="index", on="sid", gpu_pid="pid")
        self.launches = self._launches()
        self.calls = self.launches["index"].to_list()
        self.before = self._before() if RECORD in names else None
        self.after = self._after() if {WAIT_CALL, WAIT_ROW} <= names else None

    def _launches(self) -> pl.DataFrame:
        """Launching calls by time, with stream and device of the GPU activity that they point to."""
        calls = self._by_time(pl.col("name").is_in(LAUNCHES) & (pl.col("partner") > 0))
        calls = calls.join(self.linked, on="partner", maintain_order="left_right")
        return calls.with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64)).select(COLUMNS)

    def _by_time(self, which: pl.Expr) -> pl.DataFrame:
        found = self.frame.rows.filter(which)
        return found[order(found["ts"].to_numpy(), self.frame.dtype)]

    def _among(self, calls: pl.DataFrame, by: list[str]) -> Iterator[list[tuple[int | None, int, int]]]:
        """(number of a launch or None, index, id) in order of time, of each group that such a call is in."""
        calls = calls.with_columns(number=pl.lit(None, dtype=pl.Int64)).select(COLUMNS)
        found = pl.concat([self.launches, calls])
        found = found[order(found["ts"].to_numpy(), self.frame.dtype)]
        found = found.join(calls.select(by).unique(), on=by, how="semi", maintain_order="left")
        for _, group in found.group_by(by, maintain_order=True):
            yield group.select("number", "index", "correlation").rows()

    def _before(self) -> dict[int, int] | None:
        records = self._by_time(pl.col("name") == RECORD)
        streams = self.frame.rows.filter(pl.col("wait_on_stream") > -1)
        streams = streams.select(correlation="wait_on_record", on="wait_on_stream", gpu_pid="pid").unique()
        if records["correlation"].is_duplicated().any() or streams["correlation"].is_duplicated().any():
            raise Fails("MergeError", 3, "the id of a record call is not its own")
        records = records.join(streams, on="correlation", maintain_order="left")
        found: dict[int, int] = {}
        for group in self._among(records, ["gpu_pid", "on"]):
            last = -1
            for number, _, correlation in group:
                if number is None:
                    found[correlation] = self._call(last)
                else:
                    last = max(last, number)
        return found or None

    def _after(self) -> dict[int, int]:
        calls = self._by_time((pl.col("name") == WAIT_CALL) & (pl.col("partner") > 0))
        calls = calls.join(self.linked, on="partner", maintain_order="left_right")
        if calls.is_empty():
            raise Fails("ValueError", 2, "no wait of a stream is left: there is nothing to put together")
        found: dict[int, int] = {}
        for group in self._among(calls, ["pid", "tid", "on"]):
            first = -1
            for number, at, _ in reversed(group):
                if number is None:
                    found[at] = self._call(first)
                else:
                    first = number if first < 0 else min(first, number)
        return found

    def _call(self, number: int) -> int:
        return -1 if number < 0 else int(self.calls[number])
