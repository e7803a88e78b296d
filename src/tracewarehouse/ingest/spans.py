"""Several profiling spans of one job: which file belongs to which, over all ranks alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

Window: TypeAlias = tuple[int | None, int | None]
Windowed: TypeAlias = tuple[Path, Window]


def spans_of(by_rank: Mapping[int, Sequence[Windowed]]) -> dict[Path, int]:
    """The span of each file, counted from 1 by start time; files that overlap in time share their span.

    Where ranks have different numbers of spans, the rank with most (the first of them) is the measure: a file
    of a rank with fewer belongs to the span it overlaps most, else to the nearest.
    """
    counted = {rank: _count(files) for rank, files in sorted(by_rank.items())}
    most = max(max(spans.values()) for spans in counted.values())
    model = next(rank for rank, spans in counted.items() if max(spans.values()) == most)
    measure = [(counted[model][path], *window) for path, window in by_rank[model]]
    spans: dict[Path, int] = {}
    for rank, own in counted.items():
        if max(own.values()) == most:
            spans.update(own)
        else:
            spans.update({path: _nearest(window, measure) for path, window in by_rank[rank]})
    return spans


def _count(files: Sequence[Windowed]) -> dict[Path, int]:
    if any(start is None or end is None for _, (start, end) in files):
        return {path: 1 for path, _ in files}
    spans: dict[Path, int] = {}
    number, reached = 0, None
    for path, (start, end) in sorted(files, key=lambda file: (file[1], file[0])):
        assert start is not None and end is not None
        if reached is None or start >= reached:
            number += 1
        reached = end if reached is None else max(reached, end)
        spans[path] = number
    return spans


def _nearest(window: Window, measure: Sequence[tuple[int, int | None, int | None]]) -> int:
    start, end = window
    if start is None or end is None:
        return 1

    def overlap(other: tuple[int, int | None, int | None]) -> int:
        # Negative where the two are apart: then the smallest distance wins.
        return min(end, other[2] or 0) - max(start, other[1] or 0)

    return max(measure, key=overlap)[0]
