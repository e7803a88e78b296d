"""Time series: queue length of streams and memory bandwidth; traces with counters or overlays."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.figures import library
from tracewarehouse.hta.traces import US, LoadedTraces, log

QUEUE = """
    SELECT rank, ts_ns, device AS pid, stream AS tid, stream, queue_length
    FROM queue_changes
    ORDER BY rank, device, stream, ts_ns, change DESC, change * queue_length"""
DIRECTIONS = {"Memset": "Memset", "unknown": "Memcpy Unknown"}


def queue_lengths(traces: LoadedTraces, ranks: list[int]) -> dict[int, Any]:
    """By rank: `ts` (µs since the first event), `pid` (device), `tid`, `stream`, `queue_length`.

    One row per change. Ranks without a known launch are skipped.
    """
    frame = traces.query(QUEUE)
    frame.insert(0, "ts", traces.since_start(frame.pop("ts_ns")))
    return _by_rank(frame, ranks)


def _by_rank(frame: Any, ranks: list[int]) -> dict[int, Any]:
    parts = {int(rank): part for rank, part in frame.groupby("rank")}
    return {rank: parts[rank].drop(columns="rank").reset_index(drop=True) for rank in ranks if rank in parts}


def queue_summary(series: Mapping[int, Any]) -> Any:
    """Statistics of `queue_length` over its changes, by rank and stream; None without changes."""
    return _described(series, "stream", "queue_length")


def _described(series: Mapping[int, Any], key: str, value: str) -> Any:
    frames = [
        frame.assign(rank=rank)[["rank", key, value]].groupby(["rank", key]).describe()
        for rank, frame in series.items()
        if len(frame)
    ]
    return library("pandas").concat(frames) if frames else None


def blocked(traces: LoadedTraces, series: Mapping[int, Any], most: int) -> Any:
    """Time at full queue in µs, and as a share of the time from first launch to last start.

    One row per rank and stream of the series that reached this length.
    """
    if most < 1:
        raise ParamError(f"max_queue_length must be at least 1, not {most}")
    frame = traces.frame("queue_blocked", traces.select_ranks(list(series)), max_length=most)
    known = {(rank, stream) for rank, each in series.items() for stream in each["stream"].unique()}
    keys = zip(frame["rank"], frame["stream"], frame.blocked_ns.fillna(0), strict=True)
    frame = frame.loc[[bool(ns) and (rank, stream) in known for rank, stream, ns in keys]]
    share = "relative_duration_at_max_queue_length"
    times = {"duration_at_max_queue_length": frame.blocked_ns.astype(float) / US, share: frame.share}
    found = frame.assign(**times)[["rank", "stream", *times]]
    return found.reset_index(drop=True)


def bandwidths(traces: LoadedTraces, ranks: list[int]) -> dict[int, Any]:
    """By rank: `ts` (µs since the first event), `pid` (device), `name` (direction), `memory_bw_gbps`."""
    frame = traces.frame("memory_bandwidth", ranks)
    frame["ts"] = traces.since_start(frame.ts_ns)
    frame["pid"] = frame.device
    frame["name"] = [DIRECTIONS.get(each, f"Memcpy {each}") for each in frame.direction]
    frame["memory_bw_gbps"] = frame.bandwidth_bytes_per_ns
    frame = frame.sort_values(["rank", "device", "direction", "ts_ns"])
    return _by_rank(frame[["rank", "ts", "pid", "name", "memory_bw_gbps"]], ranks)


def bandwidth_summary(series: Mapping[int, Any]) -> Any:
    """Statistics of nonzero `memory_bw_gbps`, by rank and direction; None without copies."""
    running = {rank: frame[frame.memory_bw_gbps > 0] for rank, frame in series.items()}
    return _described(running, "name", "memory_bw_gbps")


def write(
    traces: LoadedTraces,
    rank: int,
    folder: Path,
    name: str,
    *,
    counters: Iterable[str] = (),
    overlays: Iterable[str] = (),
) -> Path:
    """Writes the trace with added counters and overlays; returns the file.

    `{}` in `name` is the name of the input without its extension. Raises ParamError for the input folder.
    """
    if folder.resolve() in traces.inputs:
        raise ParamError(
            f"{folder} contains the input traces",
            "use another folder; there the file would be read as another rank",
        )
    (about,) = traces.warehouse.query_all(f"SELECT source_name FROM ranks WHERE rank = {rank}").rows()
    stem = about["source_name"].removesuffix(".gz").removesuffix(".json")
    text = traces.warehouse.export_trace(traces.run, rank, counters=counters, overlays=overlays)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name.format(stem)}.json.gz"
    with gzip.open(target, "wt", encoding="utf-8") as out:
        out.writelines(text)
    return target


def write_each(
    traces: LoadedTraces, ranks: Iterable[int], folder: Path, name: str, counters: list[str]
) -> None:
    """Writes several ranks; those without data for counters are logged and skipped.

    Raises ParamError if no rank has data.
    """
    written, last_error = 0, None
    for rank in ranks:
        try:
            write(traces, rank, folder, name, counters=counters)
            written += 1
        except ParamError as error:
            log.warning("skipped rank %s: no counters: %s", rank, error)
            last_error = error
    if last_error is not None and not written:
        raise last_error
