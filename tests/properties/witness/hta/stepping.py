"""The step of each row as HTA has it."""

from __future__ import annotations

import polars as pl

from witness.hta.frame import STEP
from witness.hta.rules import Fails


def with_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """`step` of a host row: the last mark, copies on the GPU too, that holds its start; of a GPU activity its
    partner's; of a row of stream 0 none, unless an operator carries it."""
    step = pl.Series([-1] * len(rows), dtype=pl.Int64)
    marks = rows.filter(pl.col("name").str.starts_with("ProfilerStep"))
    for name, ts, dur in marks.select("name", "ts", "dur").rows():
        mark = STEP.match(name)
        if mark is None:
            raise Fails("AssertionError", 6, "a step without a number")
        held = (rows["ts"] >= ts) & (rows["ts"] < ts + dur)
        step = step.set(held, int(mark[1]))
    at_host = dict(zip(rows["index"], step, strict=True))
    partners = rows["partner"].fill_null(-1)
    of_partner = [at_host.get(partner, -1) if partner > 0 else -1 for partner in partners]
    stream = pl.col("arg_stream")
    by_time = (stream < 0) | ((stream == 0) & (pl.col("cat") == "cpu_op"))
    return rows.with_columns(
        step=pl.when(by_time).then(step).when(stream > 0).then(pl.Series(of_partner)).otherwise(None)
    )
