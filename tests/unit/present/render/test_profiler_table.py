"""Rows of `key_averages` as PyTorch prints them."""

from __future__ import annotations

from typing import Any

import pytest

from tracewarehouse.present.render.table import profiler_tables, size, time

TIMES = {"self_cpu_ns": 400, "cpu_total_ns": 1000, "self_device_ns": None, "device_total_ns": None}
BYTES = dict.fromkeys(
    ("cpu_memory_bytes", "self_cpu_memory_bytes", "device_memory_bytes", "self_device_memory_bytes")
)


def row(name: str, **more: Any) -> dict[str, Any]:
    keys = {"run_id": "a", "rank": 0, "name": name, "is_annotation": False, "on_gpu": False}
    return {**keys, "shapes": None, "stack": None, "count": 1, **TIMES, **BYTES, "flops": None, **more}


def test_a_host_table() -> None:
    rows = [row("aten::mm", count=4), row("aten::empty", self_cpu_ns=600_000, cpu_total_ns=600_000)]
    ruler = "  ".join(["-" * 12] * 7)
    assert profiler_tables(rows[:1], rows) == (
        f"{ruler}\n"
        "        Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls\n"
        f"{ruler}\n"
        "    aten::mm         0.07%       0.400us         0.17%       1.000us       0.250us             4\n"
        f"{ruler}\n"
        "Self CPU time total: 600.400us\n"
    )


def test_columns_of_device_memory_and_shapes_appear_where_there_are_values() -> None:
    device = {"self_device_ns": 500, "device_total_ns": 700}
    used = dict.fromkeys(BYTES, 2048)
    rows = [
        row("mm", shapes="[[2]]", **device, **used),
        row("gemm", on_gpu=True, **device, **used),
        row("step", on_gpu=True, is_annotation=True, **device, **used),
    ]
    text = profiler_tables(rows, rows)
    heading = text.splitlines()[1].split("  ")
    assert [name.strip() for name in heading if name.strip()][6:] == [
        *("Self device", "Self device %", "Device total", "Device time avg"),
        *("CPU Mem", "Self CPU Mem", "Device Mem", "Self Device Mem", "# of Calls", "Input Shapes"),
    ]
    assert text.splitlines()[-1] == "Self device time total: 0.500us"
    assert "2.00 KB" in text


def test_flop_are_in_the_unit_of_the_smallest_number() -> None:
    rows = [row("mm", flops=4_230_000), row("add", flops=786_432), row("to")]
    heading, *cells = (
        line.rpartition("  ")[2].strip() for line in profiler_tables(rows, rows).splitlines()[1:-2]
    )
    assert (heading, cells[1:]) == ("Total KFLOPs", ["4230.000", "786.432", "--"])
    assert "FLOP" not in profiler_tables(rows[2:], rows[2:])


def test_ranks_are_named_only_if_there_are_several() -> None:
    rows = [row("x" * 60), row("y", rank=1, self_cpu_ns=0)]
    text = profiler_tables(rows, rows)
    assert "a rank 0\n" in text and "a rank 1\n" in text
    assert "x" * 52 + "..." in text and "x" * 53 not in text
    assert "0.00%" in text
    assert profiler_tables([], []) == "(no rows)\n"


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.000us"), (999_999, "999.999us"), (1_000_000, "1.000ms"), (2_500_000_000, "2.500s")],
)
def test_times(ns: int, text: str) -> None:
    assert time(ns) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (-1023, "-1023 B"), (1536, "1.50 KB"), (-(3 << 20), "-3.00 MB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
