"""`host_segments` and `host_account` on a recorded training job, against a sweep over its slices."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT

KINDS = {"cpu_op": "operator", "python_function": "python", "user_annotation": "annotation"}
LOADS = re.compile(
    r"(?i)\bdata_?loader\b|\b(load|fetch|get|read|prepare|next)_(next_)?(batch|data|inputs?|samples?)\b"
)


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    made = tw.open(tmp_path_factory.mktemp("host") / "warehouse")
    made.ingest(
        *(ROOT / "tests" / "data" / "gloo-cpu" / f"rank{rank}.json.gz" for rank in (0, 2)), run="job", jobs=1
    )
    return made


def swept(wh: tw.Warehouse, rank: int, steps: list[dict[str, Any]]) -> Counter[tuple[int, str, str | None]]:
    """Step, category and name → time of the training thread, by the innermost slice that covers it."""
    (thread,) = wh.query(
        f"SELECT DISTINCT pid, tid FROM events JOIN steps USING (rank, event_id) WHERE rank = {rank}"
    ).rows()
    slices = wh.query(
        "SELECT pre, category, name, ts_ns AS start, ts_ns + dur_ns AS stop FROM events"
        f" WHERE rank = {rank} AND pid = '{thread['pid']}' AND tid = '{thread['tid']}' AND pre IS NOT NULL"
        " AND dur_ns > 0 AND NOT starts_with(name, 'ProfilerStep#')",
        limits=None,
    ).rows()
    open_ = wh.query(
        "SELECT event_id, name, ts_ns AS start, ts_ns + dur_ns AS stop FROM events"
        f" WHERE rank = {rank} AND starts_with(name, 'gloo:') AND dur_ns > 0 ORDER BY start, event_id",
        limits=None,
    ).rows()
    borders = {time for row in slices for time in (row["start"], row["stop"])}
    bounds = [*borders, *(row["period_start_ns"] for row in steps)]
    assert min(row["start"] for row in open_) > min(bounds)
    borders |= {time for row in open_ for time in (row["start"], row["stop"])}
    borders |= {row["period_start_ns"] for row in steps}
    borders |= {row["period_start_ns"] + row["period_ns"] for row in steps}
    starting: dict[int, list[dict[str, Any]]] = {}
    for row in slices:
        starting.setdefault(row["start"], []).append(row)
    found: Counter[tuple[int, str, str | None]] = Counter()
    ordered, running = sorted(borders), list[dict[str, Any]]()
    for start, stop in zip(ordered, ordered[1:], strict=False):
        running = [row for row in running if row["stop"] > start] + starting.get(start, [])
        inside = [
            row["step"]
            for row in steps
            if row["period_start_ns"] <= start < row["period_start_ns"] + row["period_ns"]
        ]
        kind, name = innermost(running)
        waits = [row["name"] for row in open_ if row["start"] <= start < row["stop"]]
        if kind in ("annotation", "unrecorded") and waits:
            kind, name = "waiting", waits[0]
        for step in inside:
            found[step, kind, name] += stop - start
    return found


def innermost(running: list[dict[str, Any]]) -> tuple[str, str | None]:
    loads = [row for row in running if row["category"] != "python_function" and LOADS.search(row["name"])]
    inner = [row for row in running if row["category"] != "user_annotation"]
    for kind, rows in (("data_loading", loads), (None, inner), (None, running)):
        if rows:
            owner = (min if kind else max)(rows, key=lambda row: row["pre"])
            name = re.sub(" at 0x[0-9a-fA-F]+", "", owner["name"])
            return kind or KINDS.get(owner["category"], "other_slice"), name
    return "unrecorded", None


def test_the_account_equals_a_sweep_over_the_slices(wh: tw.Warehouse) -> None:
    for rank in (row["rank"] for row in wh.query("SELECT rank FROM ranks ORDER BY rank LIMIT 2").rows()):
        steps = wh.query(f"SELECT * FROM steps WHERE rank = {rank} AND period_ns > 0").rows()
        rows = wh.select(ranks=rank).host_account().rows()
        found = {(row["step"], row["category"], row["name"]): row["self_ns"] for row in rows}
        assert found == dict(swept(wh, rank, steps)) and len(found) > 50
        for step in steps:
            assert sum(ns for key, ns in found.items() if key[0] == step["step"]) == step["period_ns"]


def test_the_entire_trace_is_one_interval(wh: tw.Warehouse) -> None:
    rows = wh.select(ranks=0).host_account(entire_trace=True).rows()
    (span,) = wh.query("SELECT sum(segment_ns)::BIGINT AS ns FROM host_segments WHERE rank = 0").rows()
    assert {row["step"] for row in rows} == {None}
    assert sum(row["self_ns"] for row in rows) == span["ns"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_stacks_split_the_same_time_by_caller(wh: tw.Warehouse) -> None:
    """Only in stacks, annotations within Python frames have self time."""
    for rank in (0, 2):
        side = wh.select(ranks=rank)
        for step in wh.query(
            f"SELECT step, period_ns FROM steps WHERE rank = {rank} AND period_ns > 0"
        ).rows():
            account, stacks = Counter[str](), Counter[str]()
            for row in side.host_account().rows():
                account[row["category"]] += row["self_ns"] if row["step"] == step["step"] else 0
            rows = side.host_stacks(only_step=step["step"]).rows()
            for row in rows:
                stacks[row["category"]] += row["self_ns"]
            for sums in (account, stacks):
                sums["python"] += sum(sums.pop(each, 0) for each in ("annotation", "unrecorded", "waiting"))
            assert +stacks == +account and sums.total() == step["period_ns"]
            assert sum(row["total_ns"] for row in rows if row["depth"] <= 1) == step["period_ns"]
            below = Counter[int]()
            for row in rows:
                below[row["parent_id"]] += row["total_ns"]
            assert all(
                row["self_ns"] + below[row["node_id"]] == row["total_ns"] for row in rows if row["node_id"]
            )
            assert max(row["depth"] for row in rows) > 15
