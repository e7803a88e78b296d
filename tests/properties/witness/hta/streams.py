"""Idle time of streams, length of their queues, bandwidth of copies."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

import tracewarehouse as tw
from witness.hta.breakdowns import LOAD
from witness.hta.frame import Frame, Rank, first_start, frames, origin
from witness.hta.method import US, Method, Table, by_device, columns, percent
from witness.hta.rules import Fails, Rules
from witness.hta.spans import order

KERNEL_WAIT_NS = 30_000
GPU_CATEGORIES = ("kernel", "Kernel", "gpu_memset", "Memset", "gpu_memcpy", "Memcpy", "mtia_ccp_events")
QUARTILES = ("count", "mean", "std", "min", "25%", "50%", "75%", "max")
Gaps = dict[str, list[float]]


def described(values: list[float]) -> tuple[float, ...]:
    """Count, mean, standard deviation, minimum, quartiles and maximum."""
    if not values:
        return (0.0, *(math.nan,) * 7)
    array = np.array(values, dtype=float)
    spread = float(np.std(array, ddof=1)) if len(values) > 1 else math.nan
    return (
        len(values),
        float(array.mean()),
        spread,
        *map(float, np.quantile(array, (0, 0.25, 0.5, 0.75, 1))),
    )


# Idle time


def gaps(ranks: tuple[Rank, ...], rules: Rules) -> Iterator[tuple[tuple[Any, ...], Gaps]]:
    """The gaps of each stream by cause; (rank, device, stream) before them."""
    for frame in frames(ranks, rules):
        rows = frame.gpu
        if "idle" in rules:
            rows = frame.rows.filter((pl.col("arg_stream") != -1) & pl.col("cat").is_in(GPU_CATEGORIES))
            if rows.is_empty():
                raise Fails("ValueError", 8, "no stream: there is nothing to put together")
        single = rows["unit"].n_unique() < 2
        for device in rows.partition_by("unit"):
            window = device["ts"].min(), (device["ts"] + device["dur"]).max()
            for stream in device.partition_by("sid"):
                found = _gaps_of_hta(frame, stream) if "idle" in rules else _gaps(frame, stream, window)
                yield (frame.rank, None if single else device["unit"][0], stream["sid"][0]), found


def _gaps_of_hta(frame: Frame, stream: pl.DataFrame) -> Gaps:
    calls = frame.rows.select(partner="index", call="ts")
    rows = stream.join(calls, on="partner", how="left", maintain_order="left")
    rows = rows[order(rows["ts"].to_numpy(), frame.dtype)]
    found: Gaps = defaultdict(list)
    before = math.nan
    for ts, dur, call in rows.select("ts", "dur", "call").rows():
        gap = ts - before
        late = call is not None and call > before
        cause = "host_wait" if late else "kernel_wait" if gap < KERNEL_WAIT_NS else "other"
        found[cause].append(gap)
        before = ts + dur
    return found


def _gaps(frame: Frame, stream: pl.DataFrame, window: tuple[int, int]) -> Gaps:
    calls = frame.rows.select(runtime_id="index", call="ts")
    rows = stream.join(calls, on="runtime_id", how="left", maintain_order="left")
    rows = rows.with_columns(end=pl.col("ts") + pl.col("dur"))
    found: Gaps = defaultdict(list)
    reached, cause = window[0], "before_first"
    for ts, end, call, state in (
        rows.sort("ts", "end", "call", "index").select("ts", "end", "call", "state").rows()
    ):
        gap = ts - reached
        if cause != "before_first":
            cause = _cause(gap, call, reached, state)
        if gap > 0:
            found[cause].append(gap)
        reached, cause = max(reached, end), ""
    if window[1] > reached:
        found["after_last"].append(window[1] - reached)
    return found


def _cause(gap: int, call: int | None, reached: int, state: str) -> str:
    if call is not None and call > reached:
        return "host_wait"
    if state == "missing":
        return "unknown"
    return "kernel_wait" if gap < KERNEL_WAIT_NS else "other"


def idle(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device, stream, cause): time, share of the stream's idle time."""
    found: Table = {}
    for key, by_cause in gaps(ranks, rules):
        sums = {cause: float(np.nansum(each)) for cause, each in by_cause.items()}
        whole = sum(sums.values())
        found |= {(*key, cause): (time, time / whole if whole else math.nan) for cause, time in sums.items()}
    return found


def idle_said(answer: Any) -> Table:
    rows = columns(answer[0], "rank", "stream", "idle_category", "idle_time", "idle_time_ratio")
    return {(rank, None, stream, cause): (US * time, share) for rank, stream, cause, time, share in rows}


def idle_ours(warehouse: tw.Warehouse) -> Table:
    return {
        (*key, row["stream"], row["cause"]): (row["idle_ns"], row["share"])
        for key, row in by_device(warehouse.analyze("stream_idle").rows())
    }


def intervals(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device, stream, cause): statistics of the gaps, as `described` gives them."""
    return {
        (*key, cause): described([gap for gap in found if not math.isnan(gap)])
        for key, by_cause in gaps(ranks, rules)
        for cause, found in by_cause.items()
    }


def intervals_said(answer: Any) -> Table:
    rows = columns(answer[1], "rank", "stream", "idle_category", *QUARTILES)
    return {
        (rank, None, stream, cause): (count, *(US * time for time in times))
        for rank, stream, cause, count, *times in rows
    }


def intervals_ours(warehouse: tw.Warehouse) -> Table:
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for key, row in by_device(warehouse.analyze("stream_idle_intervals").rows()):
        found[*key, row["stream"], row["cause"]].append(row["idle_ns"])
    return {key: described(each) for key, each in found.items()}


# Queues

LAUNCHES = frozenset(
    (
        *("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"),
        *("cudaMemcpyAsync", "cudaMemsetAsync", "hipLaunchKernel", "hipExtModuleLaunchKernel"),
        *("hipMemsetAsync", "hipMemcpyAsync", "hipMemcpyWithStream"),
        "runFunction - job_prep_and_submit_for_execution",
    )
)
Points = list[tuple[int, int]]


def queues(ranks: tuple[Rank, ...], rules: Rules) -> Iterator[tuple[tuple[Any, ...], Points]]:
    """Times and lengths of each stream's queue; (rank, device, stream) before them."""
    for frame in frames(ranks, rules):
        moves = moves_of_hta(frame, rules) if "queue" in rules else _moves(frame, rules)
        single = frame.gpu["unit"].n_unique() < 2
        for (unit, sid), rows in sorted(moves.group_by("unit", "sid", maintain_order=True), key=_first):
            lengths = np.cumsum(rows["move"].to_numpy()).tolist()
            yield (frame.rank, None if single else unit, sid), list(zip(rows["at"], lengths, strict=True))


def _first(group: tuple[tuple[Any, ...], pl.DataFrame]) -> tuple[Any, ...]:
    return group[0]


def _moves(frame: Frame, rules: Rules) -> pl.DataFrame:
    calls = frame.rows.select(runtime_id="index", api="name", call="ts")
    pairs = frame.gpu.join(calls, on="runtime_id")
    if "apis" in rules:
        pairs = pairs.filter(pl.col("api").is_in(LAUNCHES))
    plus = pairs.select("unit", "sid", at=pl.min_horizontal("call", "ts"), move=pl.lit(1))
    minus = pairs.select("unit", "sid", at="ts", move=pl.lit(-1))
    return pl.concat([plus, minus]).sort("unit", "sid", "at", "move", descending=[False, False, False, True])


def moves_of_hta(frame: Frame, rules: Rules) -> pl.DataFrame:
    """What makes queues longer or shorter, in HTA's order; `index` is the call's or the GPU activity's."""
    launching = pl.col("name").is_in(LAUNCHES) if "apis" in rules else pl.col("runtime")
    calls = frame.rows.filter(launching & (pl.col("partner") > 0))
    device = frame.gpu.select("correlation", "unit", "sid")
    plus = calls.select("correlation", "index", at="ts", move=pl.lit(1)).join(
        device, on="correlation", how="left", maintain_order="left_right"
    )
    minus = frame.gpu.filter(pl.col("correlation").is_in(calls["correlation"].implode()))
    if len(plus) != len(minus):
        raise Fails("AssertionError", 3, "several calls share one id")
    columns = ("unit", "sid", "index", "at", "move")
    moves = pl.concat([plus.select(columns), minus.with_columns(at="ts", move=pl.lit(-1)).select(columns)])
    return moves[order(moves["at"].to_numpy(), frame.dtype)]


def queue_series(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device, stream, time): the length from then on."""
    start = origin(ranks, rules)
    return {(*key, at - start): (long,) for key, points in queues(ranks, rules) for at, long in points}


def queue_series_ours(warehouse: tw.Warehouse) -> Table:
    rows = warehouse.analyze("queue_length").rows()
    start = first_start(warehouse)
    return {
        (*key, row["stream"], row["ts_ns"] - start): (row["queue_length"],) for key, row in by_device(rows)
    }


def queue_series_said(answer: Any) -> Table:
    found: Table = {}
    for rank, table in answer.items():
        for stream, ts, long in columns(table, "stream", "ts", "queue_length"):
            found[int(rank), None, int(stream), round(US * ts)] = (long,)
    return found


def queue_summary(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device, stream): count, mean, standard deviation, minimum, quartiles, maximum over the moves."""
    return {key: described([long for _, long in points]) for key, points in queues(ranks, rules)}


def queue_summary_ours(warehouse: tw.Warehouse) -> Table:
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for key, row in by_device(
        warehouse.query("SELECT rank, device, stream, queue_length FROM queue_changes", limits=None).rows()
    ):
        found[*key, row["stream"]].append(row["queue_length"])
    return {key: described(each) for key, each in found.items()}


def queue_summary_said(answer: Any) -> Table:
    if answer is None or "rank/" not in answer:
        return {}
    rows = columns(answer, "rank/", "stream/", *(f"queue_length/{name}" for name in QUARTILES))
    return {(rank, None, int(stream)): tuple(rest) for rank, stream, *rest in rows}


def blocked(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(limit, rank, device, stream): time with at least `limit` in the queue, share of the trace's length."""
    found: Table = {}
    spans = {frame.rank: frame.rows["ts"].max() - frame.rows["ts"].min() for frame in frames(ranks, rules)}
    for key, points in queues(ranks, rules):
        for limit in (1, 100, 1024):
            times = [at for at, _ in points]
            full = [n for n, (_, long) in enumerate(points) if long >= limit]
            if not full:
                continue
            time = sum(times[n + 1] - times[n] for n in full if n + 1 < len(times))
            whole = spans[key[0]] if "denominator" in rules else times[-1] - times[0]
            if "last_stream" in rules:
                found = {k: v for k, v in found.items() if k[:2] != (limit, key[0])}
            found[limit, *key] = (time, percent(time, whole))
    return {key: row for key, row in found.items() if row[0]}


def blocked_ours(warehouse: tw.Warehouse) -> Table:
    return {
        (limit, *key, row["stream"]): (row["blocked_ns"], 100 * row["share"])
        for limit in (1, 100, 1024)
        for key, row in by_device(warehouse.analyze("queue_blocked", max_length=limit).rows())
        if row["blocked_ns"]
    }


def blocked_said(answer: Any) -> Table:
    found: Table = {}
    for limit, table in answer.items():
        rows = columns(
            table, "rank", "stream", "duration_at_max_queue_length", "relative_duration_at_max_queue_length"
        )
        for rank, stream, time, share in rows:
            if time:
                found[int(limit), rank, None, int(stream)] = (US * time, 100 * share)
    return found


# Bandwidth


def directions(
    ranks: tuple[Rank, ...], rules: Rules
) -> Iterator[tuple[tuple[Any, ...], list[tuple[int, float]]]]:
    """Times and GB/s of each direction; (rank, device, direction) before them."""
    for frame in frames(ranks, rules):
        rows = frame.gpu.filter(pl.col("kind") == "memory")
        single = frame.gpu["unit"].n_unique() < 2
        if "rate" in rules:
            rows = rows.with_columns(dur=pl.when(pl.col("dur") == 0).then(US).otherwise(pl.col("dur")))
        else:
            rows = rows.filter((pl.col("dur") > 0) & (pl.col("bytes") > 0))
            # Whole microseconds are too coarse for short copies: there, the profiler's value.
            known = (pl.col("bandwidth") > 0) & bool((frame.gpu["dur"] % 1000 == 0).all())
            by_duration = pl.col("bytes") / pl.col("dur")
            rows = rows.with_columns(bandwidth=pl.when(known).then("bandwidth").otherwise(by_duration))
        ways = [
            _direction(name) if "rate" in rules else _way(name, activity)
            for name, activity in rows.select("name", "activity").rows()
        ]
        rows = rows.with_columns(direction=pl.Series(ways, dtype=pl.String))
        plus = rows.select("unit", "direction", at="ts", move="bandwidth")
        minus = rows.select("unit", "direction", at=pl.col("ts") + pl.col("dur"), move=-pl.col("bandwidth"))
        moves = pl.concat([plus, minus])
        for (unit, direction), each in moves[order(moves["at"].to_numpy(), frame.dtype)].group_by(
            "unit", "direction", maintain_order=True
        ):
            rates = np.cumsum(each["move"].to_numpy())
            yield (
                (frame.rank, None if single else unit, direction),
                list(zip(each["at"], rates.tolist(), strict=True)),
            )


def _direction(name: str) -> str:
    if name.startswith("Memset"):
        return "Memset"
    return name[:11] if name.startswith("Memcpy") else "Memcpy Unknown"


WAY = re.compile(
    "(?i)^(?:memcpy |(?:memory_?)?copy_?)(host|device|peer|array|[hdpa])_?to_?(host|device|peer|array|[hdpa])"
)


def _way(name: str, activity: str) -> str:
    if activity == "memset":
        return "Memset"
    way = WAY.match(name)
    return f"Memcpy {way[1][0].upper()}to{way[2][0].upper()}" if way else "Memcpy Unknown"


def bandwidth_series_ours(warehouse: tw.Warehouse) -> Table:
    start = first_start(warehouse)
    found: Table = {}
    for key, row in by_device(warehouse.analyze("memory_bandwidth").rows()):
        found[*key, _named(row["direction"]), row["ts_ns"] - start] = (row["bandwidth_bytes_per_ns"],)
    return found


def _named(direction: str) -> str:
    return {"Memset": "Memset", "unknown": "Memcpy Unknown"}.get(direction, f"Memcpy {direction}")


def bandwidth_summary_ours(warehouse: tw.Warehouse) -> Table:
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for (*key, _), (rate,) in bandwidth_series_ours(warehouse).items():
        found[tuple(key)].append(rate)
    return {key: described([r for r in rates if r > 0]) for key, rates in found.items() if max(rates) > 0}


def bandwidth_series(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device, direction, time): GB/s from then on."""
    start = origin(ranks, rules)
    return {(*key, at - start): (rate,) for key, points in directions(ranks, rules) for at, rate in points}


def bandwidth_series_said(answer: Any) -> Table:
    found: Table = {}
    for rank, table in answer.items():
        for name, ts, rate in columns(table, "name", "ts", "memory_bw_gbps"):
            found[int(rank), None, name, round(US * ts)] = (rate,)
    return found


RESIDUE = 1e-7  # what floats leave of a sum that is 0


def _rates(points: list[tuple[int, float]], rules: Rules) -> list[float]:
    """After each move, or where moves of one moment are one, after each moment."""
    return [rate for _, rate in points] if "moments" in rules else list(dict(points).values())


def bandwidth_summary(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device, direction): statistics over the moves after which there is any."""
    positive = {
        key: [rate for rate in _rates(points, rules) if rate > RESIDUE * ("rate" not in rules)]
        for key, points in directions(ranks, rules)
    }
    return {key: described(rates) for key, rates in positive.items() if rates}


def bandwidth_summary_said(answer: Any) -> Table:
    if answer is None or "rank/" not in answer:
        return {}
    rows = columns(answer, "rank/", "name/", *(f"memory_bw_gbps/{name}" for name in QUARTILES))
    return {(rank, None, name): tuple(rest) for rank, name, *rest in rows}


QUEUE = (*LOAD, "stream", "devices", "apis", "queue")
METHODS = [
    Method(
        "get_idle_time_breakdown",
        (*LOAD, "devices", "idle"),
        idle_said,
        idle,
        idle_ours,
        within=(0.5, 0.005),
    ),
    Method(
        "get_idle_time_breakdown",
        (*LOAD, "devices", "idle"),
        intervals_said,
        intervals,
        intervals_ours,
        within=(0, *(5.5,) * 7),
        note="intervals",
    ),
    Method("get_queue_length_time_series", QUEUE, queue_series_said, queue_series, queue_series_ours),
    Method("get_queue_length_summary", QUEUE, queue_summary_said, queue_summary, queue_summary_ours),
    Method(
        "get_time_spent_blocked_on_full_queue",
        (*QUEUE, "last_stream", "denominator"),
        blocked_said,
        blocked,
        blocked_ours,
        within=(0.5, 1e-9),
    ),
    Method(
        "get_memory_bw_time_series",
        (*LOAD, "stream", "names", "devices", "rate"),
        bandwidth_series_said,
        bandwidth_series,
        bandwidth_series_ours,
        within=(1e-6,),
    ),
    Method(
        "get_memory_bw_summary",
        (*LOAD, "stream", "names", "devices", "rate", "moments"),
        bandwidth_summary_said,
        bandwidth_summary,
        bandwidth_summary_ours,
        within=(0, *(1e-6,) * 7),
    ),
]
