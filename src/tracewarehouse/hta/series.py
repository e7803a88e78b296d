"""What changes over time: the queues of the streams, and the bandwidth of copies."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.figures import library
from tracewarehouse.hta.traces import US, Opened, log

QUEUE = """
    SELECT rank, ts_ns, device AS pid, stream AS tid, stream, queue_length
    FROM queue_changes
    ORDER BY rank, device, stream, ts_ns, change DESC, change * queue_length"""
DIRECTIONS = {"Memset": "Memset", "unknown": "Memcpy Unknown"}


def queue_lengths(opened: Opened, ranks: list[int]) -> dict[int, Any]:
    """By rank `ts` (µs after the first event), `pid` (the device), `tid`, `stream`, `queue_length`.

    A row per change. Ranks without a known launch are left out.
    """
    frame = opened.query(QUEUE)
    frame.insert(0, "ts", opened.since_start(frame.pop("ts_ns")))
    return _by_rank(frame, ranks)


def _by_rank(frame: Any, ranks: list[int]) -> dict[int, Any]:
    parts = {int(rank): part for rank, part in frame.groupby("rank")}
    return {rank: parts[rank].drop(columns="rank").reset_index(drop=True) for rank in ranks if rank in parts}


def queue_summary(series: Mapping[int, Any]) -> Any:
    """Statistics of `queue_length` by rank and stream over its changes; None without any."""
    return _described(series, "stream", "queue_length")


def _described(series: Mapping[int, Any], key: str, value: str) -> Any:
    frames = [
        frame.assign(rank=rank)[["rank", key, value]].groupby(["rank", key]).describe()
        for rank, frame in series.items()
        if len(frame)
    ]
    return library("pandas").concat(frames) if frames else None


def blocked(opened: Opened, series: Mapping[int, Any], most: int) -> Any:
    """`rank, stream, duration_at_max_queue_length` in µs, and its share of first launch to last start.

    A row for each stream of the series that was ever that full.
    """
    if most < 1:
        raise ParamError(f"max_queue_length {most}", "a number above 0")
    frame = opened.frame("queue_blocked", opened.selected(list(series)), max_length=most)
    known = {(rank, stream) for rank, each in series.items() for stream in each["stream"].unique()}
    keys = zip(frame["rank"], frame["stream"], frame.blocked_ns.fillna(0), strict=True)
    frame = frame.loc[[bool(ns) and (rank, stream) in known for rank, stream, ns in keys]]
    share = "relative_duration_at_max_queue_length"
    times = {"duration_at_max_queue_length": frame.blocked_ns.astype(float) / US, share: frame.share}
    found = frame.assign(**times)[["rank", "stream", *times]]
    return found.reset_index(drop=True)


def bandwidths(opened: Opened, ranks: list[int]) -> dict[int, Any]:
    """By rank `ts` (µs after the first event), `pid` (device), `name` (direction), `memory_bw_gbps`."""
    frame = opened.frame("memory_bandwidth", ranks)
    frame["ts"] = opened.since_start(frame.ts_ns)
    frame["pid"] = frame.device
    frame["name"] = [DIRECTIONS.get(each, f"Memcpy {each}") for each in frame.direction]
    frame["memory_bw_gbps"] = frame.bandwidth_bytes_per_ns
    frame = frame.sort_values(["rank", "device", "direction", "ts_ns"])
    return _by_rank(frame[["rank", "ts", "pid", "name", "memory_bw_gbps"]], ranks)


def bandwidth_summary(series: Mapping[int, Any]) -> Any:
    """Statistics of `memory_bw_gbps` by rank and direction over its changes to above 0; None without any."""
    running = {rank: frame[frame.memory_bw_gbps > 0] for rank, frame in series.items()}
    return _described(running, "name", "memory_bw_gbps")


def write(
    opened: Opened,
    rank: int,
    folder: Path,
    name: str,
    *,
    counters: Iterable[str] = (),
    overlays: Iterable[str] = (),
) -> Path:
    """Writes the trace with what is added after its events; returns the file.

    `name` holds `{}` for that of the input without its ending. Raises ParamError for the folder of the input.
    """
    if folder.resolve() in opened.inputs:
        raise ParamError(
            f"{folder} holds the traces", "name another: the file would be read as one more rank"
        )
    (about,) = opened.house.query(f"SELECT source_name FROM ranks WHERE rank = {rank}").rows()
    stem = about["source_name"].removesuffix(".gz").removesuffix(".json")
    text = opened.house.export_trace(opened.run, rank, counters=counters, overlays=overlays)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name.format(stem)}.json.gz"
    with gzip.open(target, "wt", encoding="utf-8") as out:
        out.writelines(text)
    return target


def write_each(opened: Opened, ranks: Iterable[int], folder: Path, name: str, counters: list[str]) -> None:
    """The same of several ranks; those that lack what counters are made of are told and left out.

    Raises ParamError where all of them do.
    """
    written, lacking = 0, None
    for rank in ranks:
        try:
            write(opened, rank, folder, name, counters=counters)
            written += 1
        except ParamError as error:
            log.warning("rank %s has no counters: %s", rank, error)
            lacking = error
    if lacking is not None and not written:
        raise lacking
