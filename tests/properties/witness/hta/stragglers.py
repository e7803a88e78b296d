"""Stragglers: HTA's start late, by the clocks as they are; ours are those that others wait for.

The two answer different questions, so there is one rule, and without it nothing is said: a brute-force
witness of our own is in `witness/collectives.py`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from witness.hta.breakdowns import LOAD
from witness.hta.frame import STEP, Rank, frames, parsed
from witness.hta.method import Method, Table
from witness.hta.rules import Fails, Rules
from witness.hta.spans import order_down
from witness.hta.stepping import with_steps

CANDIDATES = 2
SHARE = 0.01


def latest(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(place,): the rank that most often was among the two that started last."""
    if "clocks" not in rules:
        return {}
    rows = _rows(ranks, rules)
    metric = _metric(rows)
    flags: dict[int, int] = {}
    for _, each in sorted(metric.group_by("step"), key=lambda group: group[0]):
        starts = sorted(each["ts"], reverse=True)
        if len(starts) < CANDIDATES:
            raise Fails("IndexError", 13, "there are fewer ranks than candidates")
        for rank, ts in each.sort("rank").select("rank", "ts").rows():
            flags[rank] = flags.get(rank, 0) + (ts >= starts[CANDIDATES - 1])
    counted = sorted(flags.items())
    places = order_down(pl.Series([count for _, count in counted]).to_numpy())
    return {(place,): (counted[at][0],) for place, at in enumerate(places[:CANDIDATES])}


def _rows(ranks: tuple[Rank, ...], rules: Rules) -> pl.DataFrame:
    """Rows of all ranks that lie in a step that is known after the load."""
    parts, steps = [], set()
    for rank, frame in zip(ranks, frames(ranks, rules), strict=True):
        stepped = with_steps(parsed(rank, rules)).select("index", step_of_hta="step")
        names = frame.rows["name"].unique()
        steps |= {int(mark[1]) for name in names if (mark := STEP.match(name or ""))}
        part = frame.rows.join(stepped, on="index", how="left", maintain_order="left")
        parts.append(part.with_columns(step="step_of_hta", rank=pl.lit(frame.rank)))
    if not steps:
        raise Fails("ValueError", 6, "a trace without steps has no stragglers")
    return pl.concat(parts).filter(pl.col("step").is_in(list(steps)))


def _metric(rows: pl.DataFrame) -> pl.DataFrame:
    """The kernels whose length differs most between ranks: the last of each rank and step."""
    first = rows["ts"].min()
    mean = ((rows["ts"] + rows["dur"]).max() - first) / rows["step"].n_unique()
    long = rows.filter(
        (pl.col("arg_stream") > 0)
        & (pl.col("step") > 0)
        & (pl.col("dur") >= SHARE * mean)
        & pl.col("name").str.starts_with("ncclKernel")
    )
    if long.is_empty():
        raise Fails("ValueError", 7, "no kernel that is long enough is called ncclKernel…")
    last = long.group_by("rank", "arg_stream", "step", "name", maintain_order=True).last()
    spread = last.group_by("arg_stream", "step", "name").agg(pl.col("dur").std())
    mean_spread = spread.group_by("arg_stream", "name").agg(pl.col("dur").mean()).drop_nulls("dur")
    if mean_spread.is_empty():
        raise Fails("TypeError", 13, "a single rank differs from no other")
    stream, name, _ = mean_spread.sort(["dur", "arg_stream", "name"], descending=[True, False, False]).row(0)
    return last.filter((pl.col("arg_stream") == stream) & (pl.col("name") == name))


def said(answer: Any) -> Table:
    return {(place,): (rank,) for place, rank in enumerate(answer)}


METHODS = [Method("get_potential_stragglers", (*LOAD, "stream", "clocks"), said, latest)]
