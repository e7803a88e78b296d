"""HTA's filters, for frames of `analyzer.t.get_trace`; a table of symbols may be given, and is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tracewarehouse.errors import ParamError


class Filter(Protocol):
    """From a frame to those of its rows that it wants."""

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        """The rows, in their order."""


class IterationFilter:
    """Rows of profiler steps, by number."""

    def __init__(self, iterations: int | Sequence[int]) -> None:
        self.iterations = [iterations] if isinstance(iterations, int) else list(iterations)

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[df["iteration"].isin(self.iterations)]


class IterationIndexFilter:
    """Rows of profiler steps, by their place among those of the frame, from 0."""

    def __init__(self, iteration_index: int | Sequence[int]) -> None:
        self.places = [iteration_index] if isinstance(iteration_index, int) else list(iteration_index)

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        steps = sorted(step for step in df["iteration"].unique() if step >= 0)
        return df[df["iteration"].isin([step for at, step in enumerate(steps) if at in self.places])]


class FirstIterationFilter(IterationIndexFilter):
    """Rows of the first profiler step."""

    def __init__(self) -> None:
        super().__init__(0)


class RankFilter:
    """Rows of ranks, of a frame with a column `rank`."""

    def __init__(self, ranks: int | Sequence[int]) -> None:
        self.ranks = [ranks] if isinstance(ranks, int) else list(ranks)

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[df["rank"].isin(self.ranks)]


class TimeRangeFilter:
    """Rows that lie in a stretch of time as a whole, in the frame's µs. ParamError if it ends early."""

    def __init__(self, time_range: tuple[float, float]) -> None:
        self.start, self.end = time_range
        if self.start > self.end:
            raise ParamError(f"time_range {time_range} ends before it starts", "(start, end), in µs")

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[(df["ts"] >= self.start) & (df["ts"] + df["dur"] <= self.end)]


class NameFilter:
    """Rows whose name begins with what the regular expression means."""

    def __init__(self, name_pattern: str, symbol_table: object = None, name_column: str = "name") -> None:
        self.pattern, self.column = name_pattern, name_column

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[df[self.column].str.match(self.pattern, na=False)]


class QueryFilter:
    """Rows that a condition of pandas' `query` holds for."""

    def __init__(self, query_str: str) -> None:
        self.condition = query_str

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df.query(self.condition)


ZeroDurationFilter = QueryFilter("dur > 0")  # HTA's name: rows without length go


class GPUKernelFilter:
    """GPU rows: kernels, copies and sets; those without a known launch too, and no synchronisations."""

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[df["on_gpu"]]


class CPUOperatorFilter:
    """All other rows."""

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[~df["on_gpu"]]


class MemCopyEventFilter:
    """Copies by their whole name, as `Memcpy HtoD (Pageable -> Device)`."""

    def __init__(self, memory_copy_type: str, symbol_table: object = None) -> None:
        self.name = memory_copy_type

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[(df["name"] == self.name) & (df["cat"] == "gpu_memcpy")]


class CompositeFilter:
    """What all of the filters want."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self.filters = list(filters)

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        for wanted in self.filters:
            df = wanted(df, symbol_table)
        return df
