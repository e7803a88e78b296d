"""The sketch language writes what Kineto writes."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sketch

EVERY_LINE = """
# a comment
a 0 header {"trace_id": "T", "displayTimeUnit": null}
a 0 gpu s7 gemm 0 1500 id=3 grid=[2,1,1] "Collective name"=all_reduce
a 0 gpu s20@1 "Memcpy HtoD (Pageable -> Device)" 50 1 bytes=4
a 0 gpu s7 "Memset (Device)" 60 0
a 0 op t1 aten::mm 0 10 id=5 'Input type=["float", "float"]'
a 0 py t1 "nn.Module: Linear_0" 0 10
a 0 ann t1 "## forward ##" 0 10
a 0 call t1 cudaLaunchKernel 1 2 id=3
a 0 call t1 cuLaunchKernel 4 2
a 0 sync s7@1 "Stream Sync" 5 1
a 0 sync t1 "Context Sync" 5 1
a 0 step t1 12 0 100
a 0 mem t1 -512 1024 7 Addr=99
a 0 count "GPU Utilization" 0.5 8
a 0 flow ac2g 3 t1:1 s7:2
a 0 raw {"ph": "M", "x": 1.50}
b 4 raw 7
"""


def loaded(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def events(name: str = "a/rank0.json") -> list[Any]:
    return list(loaded(sketch.files(EVERY_LINE)[name])["traceEvents"])


def test_a_run_and_rank_is_a_file() -> None:
    assert list(sketch.files(EVERY_LINE)) == ["a/rank0.json", "b/rank4.json"]
    top = loaded(sketch.files(EVERY_LINE)["b/rank4.json"])
    assert top["distributedInfo"] == {"backend": "nccl", "rank": 4, "world_size": 1}
    assert top["traceEvents"] == [7]


def test_header_keys_override_the_defaults() -> None:
    top = loaded(sketch.files(EVERY_LINE)["a/rank0.json"])
    assert top["trace_id"] == "T"
    assert "displayTimeUnit" not in top


def test_gpu_lines() -> None:
    kernel, copy, fill = events()[:3]
    assert (kernel["cat"], kernel["pid"], kernel["tid"]) == ("kernel", 0, 7)
    assert kernel["dur"] == Decimal("1.500")
    assert kernel["args"] == {
        "device": 0,
        "stream": 7,
        "correlation": 3,
        "grid": [2, 1, 1],
        "Collective name": "all_reduce",
    }
    assert (copy["cat"], copy["pid"], copy["args"]["device"], copy["args"]["bytes"]) == (
        "gpu_memcpy",
        1,
        1,
        4,
    )
    assert (fill["cat"], fill["dur"]) == ("gpu_memset", 0)


def test_host_lines() -> None:
    op, frame, note, launch, driver = events()[3:8]
    assert [row["cat"] for row in (op, frame, note)] == ["cpu_op", "python_function", "user_annotation"]
    assert op["args"] == {"External id": 5, "Input type": ["float", "float"]}
    assert (launch["cat"], launch["pid"], launch["args"]) == ("cuda_runtime", 1000, {"correlation": 3})
    assert driver["cat"] == "cuda_driver"


def test_other_lines() -> None:
    device_sync, host_sync, step, memory, counter, start, finish, raw = events()[8:]
    assert (device_sync["cat"], device_sync["pid"], device_sync["tid"]) == ("cuda_sync", 1, 7)
    assert (host_sync["cat"], host_sync["pid"]) == ("cuda_sync", 1000)
    assert step["name"] == "ProfilerStep#12"
    assert memory["args"]["Bytes"] == -512 and memory["args"]["Addr"] == 99 and memory["ph"] == "i"
    assert counter["args"] == {"GPU Utilization": Decimal("0.5")}
    assert (start["ph"], start["pid"], finish["ph"], finish["tid"]) == ("s", 1000, "f", 7)
    assert start["id"] == finish["id"] == 3
    assert raw == {"ph": "M", "x": Decimal("1.50")}


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0.000"), (1, "0.001"), (-1500, "-1.500"), (10**18 + 7, f"{10**15}.007")]
)
def test_micros_are_exact(ns: int, text: str) -> None:
    assert sketch.micros(ns) == text


def test_gzip_bytes_depend_only_on_the_sketch(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in sketch.write(EVERY_LINE, tmp_path / "one", zipped=True)]
    second = [path.read_bytes() for path in sketch.write(EVERY_LINE, tmp_path / "two", zipped=True)]
    assert first == second
    assert gzip.decompress(first[0]).decode() == sketch.files(EVERY_LINE)["a/rank0.json"]


@pytest.mark.parametrize(
    "line",
    ["a 0 gpu t1 k 0 1", "a 0 gpu s7 k 0", "a 0 op t1 x 0 1 loose", "a 0 nap t1", "a x op t1 x 0 1", "a"],
)
def test_errors_name_the_line(line: str) -> None:
    with pytest.raises(sketch.SketchError, match="line 1"):
        sketch.parse(line)
