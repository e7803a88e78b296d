"""Flight recorder dumps: real ones of gloo as pickle and JSON, and what they say about a stuck job."""

from __future__ import annotations

import json
from shutil import copyfile
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT, deep
from tracewarehouse.formats.pickles.flight_recorder import walk
from tracewarehouse.formats.pickles.values import Budget, RefusedPickleError

DUMPS = ROOT / "tests" / "data" / "flight-recorder"
# Frames are in the pickles only; times that are not known yet are 0 in JSON.
ONLY_IN_PICKLES = ("caller", "stack")


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """The dumps as runs: by format, and one whose names are those of PyTorch's recorder."""
    folder = tmp_path_factory.mktemp("flight")
    wh = tw.open(folder / "warehouse")
    for name, kind in (("complete", "json"), ("skipped", "pickle"), ("skipped", "json")):
        wh.ingest(*sorted((DUMPS / name).glob(f"*.{kind}")), run=f"{name}-{kind}")
    named = folder / "hang"
    named.mkdir()
    for rank in (0, 1):
        copyfile(DUMPS / "skipped" / f"rank{rank}.pickle", named / f"nccl_trace_rank_{rank}")
    wh.ingest(named)
    return wh


@pytest.mark.parametrize("name", ["skipped", *deep("complete")])
def test_pickle_and_json_hold_the_same_records(wh: tw.Warehouse, name: str) -> None:
    if name == "complete":
        wh.ingest(*sorted((DUMPS / name).glob("*.pickle")), run="complete-pickle")
    rows = [
        wh.query(f"FROM flight_records WHERE run_id = '{name}-{kind}' ORDER BY rank, record_id").rows()
        for kind in ("pickle", "json")
    ]
    assert len(rows[0]) == (14 if name == "complete" else 9)
    for one, other in zip(*rows, strict=True):
        differing = {key for key in one if one[key] != other[key]} - {"run_id"}
        assert differing <= set(ONLY_IN_PICKLES)
    assert rows[0][0]["profiling_name"] == "gloo:all_reduce" and rows[0][0]["input_sizes"] == "[[1000]]"
    assert rows[0][0]["caller"].startswith("record_flight.py:")


def test_the_rank_that_did_not_arrive_is_named(wh: tw.Warehouse) -> None:
    runs = ("skipped-pickle", "skipped-json", "hang")
    findings = wh.check(runs).rows()
    found = {row["run_id"]: row for row in findings}
    assert sorted(found) == sorted(runs) and len(findings) == 3
    for run in runs:
        (row,) = wh.select(run).stuck_collective().rows()
        assert (row["collective"], row["collective_seq"], row["process_group"]) == ("all_reduce", 3, "0")
        assert (row["missing_ranks"], row["waiting_ranks"], row["cause"]) == ([1], [0], "missing")
        assert row["explanation"].startswith(
            "Rank 1 did not arrive at all_reduce #3 of group 0 (default_pg), where rank 0 waits;"
        )
        (mismatch,) = wh.select(run).flight_mismatches().rows()
        assert (mismatch["mismatch"], mismatch["ranks"]) == ("missing", [1])
        finding = found[run]
        assert (finding["rule"], finding["rank"], finding["severity"]) == ("collective_stuck", 1, "critical")


def test_a_complete_job_is_not_stuck(wh: tw.Warehouse) -> None:
    runs = wh.select("complete-json")
    assert not runs.stuck_collective().rows() and not runs.check().rows()
    assert not runs.flight_mismatches().rows()


@pytest.mark.deep
def test_the_report_says_it_in_one_sentence(wh: tw.Warehouse) -> None:
    assert "Rank 1 did not arrive at all_reduce #3" in "".join(wh.report("hang").html())


def dump(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DUMPS / "complete" / "rank0.json").read_text(encoding="utf-8"))
    found["entries"][0] |= changes
    return found


def first(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = walk(dump(**changes), Budget(10**6)).tables["flight_records"].to_pylist()[0]
    return row


def test_odd_values() -> None:
    assert first(process_group=None, pg_id=7)["process_group"] == "7"
    assert first(process_group=("a", 3), pg_id=None)["process_group"] is None
    assert first(duration_ms=0.25)["duration_ns"] == 250_000
    assert first(duration_ms=float("nan"))["duration_ns"] is None
    assert first(input_sizes=[["x", 2], 5])["input_sizes"] == "[[2]]"
    assert first(state=5)["state"] is None
    assert (
        first(frames=[{"filename": "/env/torch/x.py"}, {"filename": "a/b.py", "line": 3}])["caller"]
        == "b.py:3 ?"
    )
    assert first(is_p2p=True)["collective_seq"] is None


@pytest.mark.parametrize("root", [[], {"entries": []}, {"entries": {}, "version": "2.4"}, {"version": "2.4"}])
def test_other_values_are_refused(root: Any) -> None:
    with pytest.raises(RefusedPickleError):
        walk(root, Budget(100))
