"""Kernel counters of a recorded trace, compared with plain Python over the JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import real_traces

TRACE = "hta-singles/a100_cupti_profiler_range.json.gz"


def stack(events: list[dict[str, Any]], call: dict[str, Any]) -> list[str]:
    """Names of the operators enclosing a call, outermost first."""
    ops = [
        event
        for event in events
        if event.get("cat") == "cpu_op"
        and event["tid"] == call["tid"]
        and event["ts"] <= call["ts"]
        and call["ts"] + call["dur"] <= event["ts"] + event["dur"]
    ]
    return [op["name"] for op in sorted(ops, key=lambda op: (op["ts"], -op["dur"]))]


def test_counters_and_stacks_are_those_of_the_file(tmp_path: Path) -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    events = json.loads(gzip.decompress((folder / TRACE).read_bytes()))["traceEvents"]
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(folder / TRACE, run="cupti")
    found = warehouse.cupti_counters().rows()
    ranges = [event for event in events if event.get("cat") == "cuda_profiler_range"]
    calls = [event for event in events if event["name"] == "cudaLaunchKernel"]
    wanted = {
        (place, counter): (row["name"], value, stack(events, call) or None)
        for place, (row, call) in enumerate(zip(ranges, calls, strict=True), 1)
        for counter, value in row["args"].items()
    }
    assert {
        (row["position"], row["counter"]): (row["name"], row["value"], row["op_stack"]) for row in found
    } == wanted
    sixth = next(row for row in found if row["position"] == 6 and "_fadd_" in row["counter"])
    assert len({row["event_id"] for row in found}) == 77  # as in HTA's tests
    assert (sixth["name"].split("<")[0], sixth["value"]) == ("void fft2d_r2c_32x32", 86_114_304)
    assert (sixth["top_op"], sixth["op"]) == ("aten::conv2d", "aten::cudnn_convolution")
