"""Unions and sweeps as HTA makes them: sorted by start with numpy's unstable quicksort, group by group."""

from __future__ import annotations

import numpy as np
import polars as pl

US = 1_000
Pieces = tuple[np.ndarray, np.ndarray]


def order(ns: np.ndarray, dtype: np.dtype | None = None) -> np.ndarray:
    """The order that pandas' sort_values gives for times: equal ones come as the type's own sort leaves them.

    `dtype` is that of the whole µs in HTA's frame; None keeps the ns.
    """
    return np.argsort(ns if dtype is None else (ns // US).astype(dtype), kind="quicksort")


def order_down(values: np.ndarray) -> np.ndarray:
    """The same for a descending sort."""
    turned = np.arange(len(values))[::-1]
    return turned[np.argsort(values[::-1], kind="quicksort")][::-1]


def merged(rows: pl.DataFrame, dtype: np.dtype | None = None) -> Pieces:
    """Starts and ends of the union of the rows; an interval may be negative where a length is."""
    ts, dur = rows["ts"].to_numpy(), rows["dur"].to_numpy()
    if not len(ts):
        return ts, ts
    by_start = order(ts, dtype)
    ts, end = ts[by_start], ts[by_start] + dur[by_start]
    new = np.concatenate([[True], ts[1:] > np.maximum.accumulate(end)[:-1]])
    at = np.flatnonzero(new)
    return np.minimum.reduceat(ts, at), np.maximum.reduceat(end, at)


def length(pieces: Pieces) -> int:
    """All of them summed."""
    return int(pieces[1].sum() - pieces[0].sum())


def sweep(weighted: list[tuple[int, Pieces]], dtype: np.dtype | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The state after each start (plus its weight) or end (minus), and the time until the next one."""
    time = np.concatenate([part for _, pieces in weighted for part in pieces])
    weight = np.concatenate(
        [
            np.full(len(part), sign * value)
            for value, p in weighted
            for part, sign in zip(p, (1, -1), strict=True)
        ]
    )
    by_time = order(time, dtype)
    return np.cumsum(weight[by_time]), _until_next(time[by_time])


def sweep_by_turns(weighted: list[tuple[int, Pieces]]) -> tuple[np.ndarray, np.ndarray]:
    """The same, sorted again after each group: at equal times another order."""
    time, weight = np.empty(0, np.int64), np.empty(0, np.int64)
    for value, (starts, ends) in weighted:
        time = np.concatenate([time, starts, ends])
        weight = np.concatenate([weight, np.full(len(starts), value), np.full(len(ends), -value)])
        by_time = order(time)
        time, weight = time[by_time], weight[by_time]
    return np.cumsum(weight), _until_next(time)


def _until_next(time: np.ndarray) -> np.ndarray:
    return np.diff(time, append=time[-1:])
