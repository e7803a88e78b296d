"""The rows of a trace by rank, as `analyzer.t` of HTA gives them."""

from __future__ import annotations

from typing import Any

from tracewarehouse.hta.traces import US, Opened

ROWS = """
    SELECT
        events.event_id AS "index", events.category AS cat, events.name, events.pid, events.tid,
        events.ts_ns, events.dur_ns, coalesce(kernels.stream, -1) AS stream,
        coalesce(events.correlation, -1) AS correlation,
        coalesce(kernels.runtime_id, launched.first_id, -1) AS index_correlation,
        coalesce(events.step, -1) AS iteration, kernels.event_id IS NOT NULL AS on_gpu
    FROM events
    LEFT JOIN kernels USING (run_id, rank, event_id)
    LEFT JOIN (
        SELECT runtime_id, min(event_id) AS first_id FROM kernels WHERE rank = {rank} GROUP BY runtime_id
    ) AS launched ON launched.runtime_id = events.event_id
    WHERE rank = {rank} AND events.ph IN ('X', 'B') AND events.dur_ns IS NOT NULL
    ORDER BY events.event_id"""


class Trace:
    """Rows with a length, of each rank. Names are words, so there is no table of symbols to decode."""

    symbol_table = None

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._frames: dict[int, Any] = {}

    def get_ranks(self) -> list[int]:
        """The ranks, in order."""
        return self.opened.ranks

    def get_trace(self, rank: int) -> Any:
        """`index, cat, name, pid, tid, ts, dur, end, stream, correlation, index_correlation, iteration, …`.

        One row per event, by its place in the file. `ts`, `dur` and `end` are µs, `ts` after the first event
        of the run; `stream` is -1 but for GPU rows, `index_correlation` the call of a GPU row, the first GPU
        row of a call, or -1; `iteration` the profiler step or -1. `s_cat` and `s_name` are `cat` and `name`;
        `on_gpu` says of kernels, copies and sets that they are.
        Asked again it is the same frame. Raises ParamError for a rank that is not there.
        """
        (rank,) = self.opened.selected([rank])
        if rank not in self._frames:
            self._frames[rank] = self._read(rank)
        return self._frames[rank]

    def get_all_traces(self) -> dict[int, Any]:
        """`get_trace` of each rank."""
        return {rank: self.get_trace(rank) for rank in self.get_ranks()}

    def get_iterations(self, rank: int | None = None) -> list[int]:
        """The profiler's steps of a rank, by default the first."""
        steps = self.get_trace(self.get_ranks()[0] if rank is None else rank)["iteration"].unique()
        return sorted(int(step) for step in steps if step >= 0)

    def decode_symbol_ids(self, use_shorten_name: bool = True) -> None:
        """Nothing: names are words already, in full."""

    def _read(self, rank: int) -> Any:
        found = self.opened.query(ROWS.format(rank=rank)).set_index("index", drop=False).rename_axis(None)
        found["ts"] = self.opened.since_start(found.pop("ts_ns"))
        found["dur"] = found.pop("dur_ns") / US
        found["end"] = found.ts + found.dur
        found["s_cat"], found["s_name"] = found.cat, found.name
        return found
