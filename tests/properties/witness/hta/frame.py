"""The rows that HTA would look at, made of our tables: its parser, correlation and load filter as rules."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import polars as pl

import tracewarehouse as tw
from witness.hta.rules import Rules

SLICES = "raw_category IS NOT NULL AND raw_category <> 'Trace' AND events.ph = 'X'"
ROWS = f"""
    SELECT
        events.event_id AS "index", events.ph, raw_category AS cat, category, events.name, pid, tid,
        events.ts_ns, events.dur_ns, ts_text, dur_text, events.step,
        CASE
            WHEN regexp_full_match(args ->> '$.stream', '-?[0-9]+') THEN (args ->> '$.stream')::BIGINT
            ELSE -1
        END AS arg_stream,
        coalesce(try_cast(args ->> '$.correlation' AS BIGINT), -1) AS correlation,
        coalesce(try_cast(args ->> '$."memory bandwidth (GB/s)"' AS DOUBLE), 0.0) AS bandwidth,
        coalesce(try_cast(args ->> '$.wait_on_stream' AS BIGINT), -1) AS wait_on_stream,
        coalesce(try_cast(args ->> '$.wait_on_cuda_event_record_corr_id' AS BIGINT), -1) AS wait_on_record,
        kind, gpu.device, gpu.stream, gpu.runtime_id, gpu.op_id, parent_id, depth IS NOT NULL AS nests,
        events.bytes, activity,
        coalesce(list_contains(json_keys(extra), 'tid'), false) AS text_tid,
        launch_state AS state, events.event_id IN (SELECT event_id FROM runtime) AS runtime,
        category IN ('gpu_user_annotation', 'kernel', 'gpu_memcpy', 'gpu_memset') AS on_device, sync_call
    FROM events
    LEFT JOIN (
        SELECT event_id, kind, activity, device, stream, runtime_id, op_id, launch_state FROM kernels
    ) AS gpu
        USING (event_id)
    LEFT JOIN (SELECT event_id, runtime_id AS sync_call FROM syncs) AS sync USING (event_id)
    WHERE {SLICES}
    ORDER BY events.event_id"""
STAMPS = """
    SELECT count(*) FILTER (ts_ns IS NULL AND ts_text IS NULL) AS missing, count(*) AS events
    FROM events"""
MICROSECOND = 1_000
STEP = re.compile(r"ProfilerStep#(\d+)")
LOAD_RULES = frozenset(("last_list", "rounding", "last_step", "many", "join", "stream", "names", "devices"))
SYNCS = ("Event Sync", "Context Sync")

COMMUNICATION = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
MEMORY = re.compile(r"(^(hip)?Memcpy)|(^(hip)?Memset)|(^dma)")
NOT_COMPUTATION = re.compile(
    r"(^nccl)|(.*Memcpy)|(.*Memset)|(.*dma)|(^.*Sync)|(^Stream Wait Event)|(cuda.*LaunchKernel)"
    r"|(^runFunction)|(^hip)|(^job_exe)|(^packet)|(^pe_exe)|(^cpum_exe_subgraph)|(^hccl)|(^collective_subgraph_execution)"
)


def kind_by_name(name: str) -> str:
    """HTA's kind of a row."""
    if COMMUNICATION.match(name):
        return "communication"
    if MEMORY.match(name):
        return "memory"
    return "other" if NOT_COMPUTATION.match(name) else "computation"


@dataclass(frozen=True, eq=False)
class Rank:
    """The slices of one rank, as the file has them, and what decides how HTA reads its times.

    `unseen`: the events before the last of several `traceEvents`, which is all that HTA sees.
    """

    rank: int
    rows: pl.DataFrame
    base_ns: int
    floats: bool
    unseen: int = 0
    missing: bool = False

    @cached_property
    def dtype(self) -> np.dtype:
        """What pandas holds the rounded starts in: the smallest integer, a float where one is missing."""
        if self.missing:
            return np.dtype(np.float64)
        ts = self.rounded[0] // MICROSECOND
        wide = [np.dtype(name) for name in ("int8", "int16", "int32", "int64")]
        return next(d for d in wide if np.iinfo(d).min <= ts.min() and ts.max() <= np.iinfo(d).max)

    @cached_property
    def rounded(self) -> tuple[np.ndarray, np.ndarray]:
        """Starts and lengths as HTA has them, in ns: whole µs where the file's times are floats."""
        if not self.floats:
            return self.exact
        starts = [_us(ns - self.base_ns, text) for ns, text in self.rows.select("ts_ns", "ts_text").rows()]
        lengths = [_us(ns, text) for ns, text in self.rows.select("dur_ns", "dur_text").rows()]
        ts = np.array([math.ceil(start) for start in starts], dtype=np.int64)
        ends = [math.floor(start + dur) for start, dur in zip(starts, lengths, strict=True)]
        return ts * MICROSECOND, (np.array(ends, dtype=np.int64) - ts) * MICROSECOND

    @property
    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """Starts and lengths as we have them, the starts without the base time."""
        return self.rows["ts_ns"].to_numpy() - self.base_ns, self.rows["dur_ns"].to_numpy()

    @cached_property
    def kinds(self) -> dict[str, str]:
        """HTA's kind of each name."""
        return {name: kind_by_name(name) for name in self.rows["name"].unique()}


def _us(ns: int, text: str | None) -> float:
    return ns / MICROSECOND if text is None else float(text)


def read(warehouse: tw.Warehouse, run: str, files: Mapping[int, Path]) -> tuple[Rank, ...]:
    """The ranks of a run, in their order; `files` are what they were read from."""
    found = []
    for about in (
        warehouse.select(runs=[run]).query("SELECT rank, header FROM ranks ORDER BY rank", limits=None).rows()
    ):
        seen = warehouse.select(runs=[run], ranks=[about["rank"]])
        rows = pl.DataFrame(seen.query(ROWS, limits=None).polars())
        stamps = seen.query(STAMPS, limits=None).rows()[0]
        base = json.loads(about["header"] or "{}").get("baseTimeNanoseconds", 0)
        unseen = stamps["events"] - _last_list(files[about["rank"]]) if _has_lists(seen) else 0
        found.append(
            Rank(
                about["rank"],
                rows,
                int(base),
                _floats(rows, stamps["missing"]),
                unseen,
                bool(stamps["missing"]),
            )
        )
    return tuple(found)


def _has_lists(seen: tw.Warehouse) -> bool:
    quality = seen.analyze("quality").rows()
    return any("traceEvents occurs more than once" in (row["example"] or "") for row in quality)


def _last_list(path: Path) -> int:
    data = path.read_bytes()
    return len(json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)["traceEvents"])


def _floats(rows: pl.DataFrame, missing: int) -> bool:
    """Whether pandas holds the starts as float64: one is not whole, or one is not there."""
    fraction = ((rows["ts_ns"] % MICROSECOND) != 0).any() or rows["ts_text"].str.contains(r"[.eE]").any()
    return bool(fraction or missing)


@dataclass(frozen=True)
class Frame:
    """The rows of a rank after the load, by a set of rules; `ts` and `dur` in ns, `gpu` marks GPU activities.

    `dtype` is the type in which HTA holds the starts, in µs; None where they are as exact as ours.
    """

    rank: int
    rows: pl.DataFrame
    dtype: np.dtype | None = None

    @cached_property
    def gpu(self) -> pl.DataFrame:
        """The GPU activities, in the frame's order."""
        return self.rows.filter("gpu")

    def devices(self) -> list[tuple[int | None, pl.DataFrame]]:
        """GPU activities by device; one group, named None, where there is only one."""
        groups = self.gpu.partition_by("unit", maintain_order=True)
        if len(groups) < 2:
            return [(None, group) for group in groups]
        return [(group["unit"][0], group) for group in groups]


def frames(ranks: tuple[Rank, ...], rules: Rules) -> list[Frame]:
    """What HTA's load leaves of each rank, under the rules."""
    return _frames(ranks, rules & LOAD_RULES)


@lru_cache(maxsize=40)
def _frames(ranks: tuple[Rank, ...], rules: Rules) -> list[Frame]:
    steps = {name for rank in ranks for name in rank.rows["name"].unique() if STEP.match(name or "")}
    steps |= {name for rank in ranks for name in rank.rows["cat"].unique() if STEP.match(name or "")}
    return [_frame(rank, rules, len(steps) > 1) for rank in ranks]


def parsed(rank: Rank, rules: Rules) -> pl.DataFrame:
    """The rows of a rank before the load filter, with what the rules say they are."""
    return _parsed(rank, rules & LOAD_RULES - {"join", "last_step"})


@lru_cache(maxsize=24)
def _parsed(rank: Rank, rules: Rules) -> pl.DataFrame:
    ts, dur = rank.rounded if "rounding" in rules else rank.exact
    stream = pl.col("arg_stream") if "stream" in rules else pl.col("stream")
    gpu = pl.col("arg_stream") != -1 if "stream" in rules else pl.col("kind").is_not_null()
    kind = pl.col("name").replace_strict(rank.kinds, default=None) if "names" in rules else pl.col("kind")
    rows = rank.rows.with_columns(
        ts=pl.Series(ts),
        dur=pl.Series(dur),
        gpu=gpu,
        sid=stream.fill_null(-1),
        kind=kind.fill_null("other"),
        unit=pl.lit(0, dtype=pl.Int64) if "devices" in rules else pl.col("device").fill_null(-1),
        device_like=((pl.col("arg_stream") >= 0) & (pl.col("correlation") >= 0))
        | pl.col("name").is_in(SYNCS),
    )
    if "last_list" in rules and rank.unseen:
        place = pl.col("index", "runtime_id", "op_id", "parent_id", "sync_call") - rank.unseen
        rows = rows.filter(pl.col("index") >= rank.unseen).with_columns(place)
    return rows.with_columns(partner=_partners(rows, rules))


def _partners(rows: pl.DataFrame, rules: Rules) -> pl.Series:
    """`index` of the other side of a launch; -1 and 0 mean none in HTA. Ours: of GPU activities only."""
    if "many" not in rules:
        return rows["runtime_id"].fill_null(-1)
    linked = rows.filter(pl.col("correlation") != -1)
    host = linked.filter(~pl.col("device_like")).select("correlation", host="index")
    device = linked.filter("device_like").select("correlation", device="index")
    pairs = host.join(device, on="correlation", how="inner", maintain_order="left_right")
    partner = dict(zip(pairs["host"], pairs["device"], strict=True))
    partner |= dict(zip(pairs["device"], pairs["host"], strict=True))
    default = rows["correlation"].clip(upper_bound=0)
    return pl.Series(
        [partner.get(at, none) for at, none in zip(rows["index"], default, strict=True)], dtype=pl.Int64
    )


def _frame(rank: Rank, rules: Rules, several_steps: bool) -> Frame:
    rows = parsed(rank, rules)
    if several_steps and rules & {"join", "last_step"}:
        rows = _load_filter(rows, rules)
    return Frame(rank.rank, rows, rank.dtype if "rounding" in rules else None)


def _load_filter(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    host, device = rows.filter(~pl.col("device_like")), rows.filter("device_like")
    if host.is_empty():
        return rows
    kept = host
    if "last_step" in rules:
        marks = host.filter(pl.col("name").str.contains(r"^ProfilerStep#\d"))
        last = marks["ts"].max() if len(marks) else host["ts"].min()
        kept = host.filter(pl.col("ts") < last)
    if "join" not in rules:
        gone = host.join(kept, on="index", how="anti")["index"]
        device = device.filter(~pl.col("runtime_id").is_in(gone.implode()))
    elif "many" in rules:
        device = device.join(kept.select("correlation"), on="correlation", maintain_order="left")
    else:
        device = device.filter(pl.col("runtime_id").is_in(kept["index"].implode()))
    return pl.concat([device, kept])


def origin(ranks: tuple[Rank, ...], rules: Rules) -> int:
    """The earliest start of all ranks, from which HTA counts."""
    starts = [parsed(rank, rules)["ts"].min() for rank in ranks if len(rank.rows)]
    return min(int(start) for start in starts if isinstance(start, int))


def first_start(warehouse: tw.Warehouse) -> int:
    """The same by our own clock."""
    (row,) = warehouse.query(f"SELECT min(ts_ns) AS first FROM events WHERE {SLICES}", limits=None).rows()
    return int(row["first"])
