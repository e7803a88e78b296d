"""HTA's filters for frames of `analyzer.t.get_trace`; a symbol table is accepted and ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tracewarehouse.errors import ParamError


class Filter(Protocol):
    """Selects rows of a frame."""

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        """The matching rows, in order."""


class IterationFilter:
    """Rows of profiler steps, by number."""

    def __init__(self, iterations: int | Sequence[int]) -> None:
        self.iterations = [iterations] if isinstance(iterations, int) else list(iterations)

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[df["iteration"].isin(self.iterations)]


class IterationIndexFilter:
    """Rows of profiler steps, by their index among the steps of the frame, zero-based."""

    def __init__(self, iteration_index: int | Sequence[int]) -> None:
        self.indexes = [iteration_index] if isinstance(iteration_index, int) else list(iteration_index)

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        steps = sorted(step for step in df["iteration"].unique() if step >= 0)
        return df[df["iteration"].isin([step for index, step in enumerate(steps) if index in self.indexes])]


class FirstIterationFilter(IterationIndexFilter):
    """Rows of the first profiler step."""

    def __init__(self) -> None:
        super().__init__(0)


class RankFilter:
    """Rows of ranks; the frame needs a column `rank`."""

    def __init__(self, ranks: int | Sequence[int]) -> None:
        self.ranks = [ranks] if isinstance(ranks, int) else list(ranks)

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[df["rank"].isin(self.ranks)]


class TimeRangeFilter:
    """Rows entirely within a time range in µs. Raises ParamError if it ends before it starts."""

    def __init__(self, time_range: tuple[float, float]) -> None:
        self.start, self.end = time_range
        if self.start > self.end:
            raise ParamError(f"time_range {time_range} ends before it starts", "use (start, end) in µs")

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[(df["ts"] >= self.start) & (df["ts"] + df["dur"] <= self.end)]


class NameFilter:
    """Rows whose name starts with a match of a regular expression."""

    def __init__(self, name_pattern: str, symbol_table: object = None, name_column: str = "name") -> None:
        self.pattern, self.column = name_pattern, name_column

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[df[self.column].str.match(self.pattern, na=False)]


class QueryFilter:
    """Rows that match an expression of pandas `query`."""

    def __init__(self, query_str: str) -> None:
        self.condition = query_str

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df.query(self.condition)


ZeroDurationFilter = QueryFilter("dur > 0")  # HTA's name: drops rows with zero duration


class GPUKernelFilter:
    """GPU activities (kernel, memcpy, memset), also without a known launch; no synchronizations."""

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[df["on_gpu"]]


class CPUOperatorFilter:
    """Rows that are not GPU activities."""

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[~df["on_gpu"]]


class MemCopyEventFilter:
    """Memory copies by full name, such as `Memcpy HtoD (Pageable -> Device)`."""

    def __init__(self, memory_copy_type: str, symbol_table: object = None) -> None:
        self.name = memory_copy_type

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        return df[(df["name"] == self.name) & (df["cat"] == "gpu_memcpy")]


class CompositeFilter:
    """Rows that match all filters."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self.filters = list(filters)

    def __call__(self, df: Any, symbol_table: object = None) -> Any:
        for condition in self.filters:
            df = condition(df, symbol_table)
        return df
