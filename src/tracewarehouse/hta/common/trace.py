"""Events of a trace by rank, as in `analyzer.t` of HTA."""

from __future__ import annotations

from typing import Any

from tracewarehouse.hta.traces import US, LoadedTraces

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
    """Events with a duration, by rank. Names are strings, so there is no symbol table."""

    symbol_table = None

    def __init__(self, traces: LoadedTraces) -> None:
        self.traces = traces
        self._frames: dict[int, Any] = {}

    def get_ranks(self) -> list[int]:
        """The ranks, in order."""
        return self.traces.ranks

    def get_trace(self, rank: int) -> Any:
        """`index, cat, name, pid, tid, ts, dur, end, stream, correlation, index_correlation, iteration, …`.

        One row per event, in file order. `ts`, `dur` and `end` are in µs, `ts` since the first event of the
        run. `stream` is -1 except for GPU activities; `index_correlation` is the call of a GPU activity, the
        first activity of a call, or -1; `iteration` is the profiler step or -1. `s_cat` and `s_name` equal
        `cat` and `name`; `on_gpu` is true for kernels, memcpy and memset. Repeated calls return the same
        frame. Raises ParamError for an unknown rank.
        """
        (rank,) = self.traces.select_ranks([rank])
        if rank not in self._frames:
            frame = self.traces.query(ROWS.format(rank=rank)).set_index("index", drop=False)
            frame = frame.rename_axis(None)
            frame["ts"] = self.traces.since_start(frame.pop("ts_ns"))
            frame["dur"] = frame.pop("dur_ns") / US
            frame["end"] = frame.ts + frame.dur
            frame["s_cat"], frame["s_name"] = frame.cat, frame.name
            self._frames[rank] = frame
        return self._frames[rank]

    def get_all_traces(self) -> dict[int, Any]:
        """`get_trace` of each rank."""
        return {rank: self.get_trace(rank) for rank in self.get_ranks()}

    def get_iterations(self, rank: int | None = None) -> list[int]:
        """Profiler step numbers of a rank, by default of the first."""
        steps = self.get_trace(self.get_ranks()[0] if rank is None else rank)["iteration"].unique()
        return sorted(int(step) for step in steps if step >= 0)

    def decode_symbol_ids(self, use_shorten_name: bool = True) -> None:
        """Does nothing: names are strings already."""
