"""Nsight Compute CSV: both forms, the locale of numbers, units, and ingest beside a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracewarehouse as tw
from cli_runner import tw as command
from conftest import deep
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.nsight_compute import metrics, rows_of, table
from tracewarehouse.formats.source_tables import Notes

LONG = """==PROF== Connected to process 42 (/usr/bin/python3)
Epoch 1 done
==PROF== Profiling "gemm" - 0: 0%....50%....100% - 9 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"
"0","42","python3","127.0.0.1","gemm","1","7","(256, 1, 1)","(8, 2, 1)","0","9.0","SpeedOfLight","Duration","usecond","{duration}",""
"0","42","python3","127.0.0.1","gemm","1","7","(256, 1, 1)","(8, 2, 1)","0","9.0","SpeedOfLight","Compute (SM) Throughput","%","{compute}",""
"0","42","python3","127.0.0.1","gemm","1","7","(256, 1, 1)","(8, 2, 1)","0","9.0","SpeedOfLight","Memory Throughput","%","{memory}",""
"0","42","python3","127.0.0.1","gemm","1","7","(256, 1, 1)","(8, 2, 1)","0","9.0","SpeedOfLight","","","","SOLBottleneck"
==PROF== Disconnected from process 42
"""  # noqa: E501
WIDE = """==PROF== Disconnected
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed","gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed","sm__cycles.sum"
"","","","","","","","","","","","msecond","%","%","cycle"
"0","42","python3","127.0.0.1","gemm","1","7","(256, 1, 1)","(8, 2, 1)","0","9.0","1.5","81.25","12","1,215,000"
"1","42","python3","127.0.0.1","gemm","1","7","(256, 1, 1)","(8, 2, 1)","0","9.0","n/a","80","13","1,215,001"
"""  # noqa: E501
ENGLISH = LONG.format(duration="1,024.5", compute="81.25", memory="12")
GERMAN = LONG.format(duration="1.024,5", compute="81,25", memory="12")
TRACE = """
a 0 call t1 cudaLaunchKernel 0 5 id=1
a 0 gpu s7 gemm 10 100 id=1 grid=[8,2,1] block=[256,1,1]
"""


def rows(text: str) -> list[dict[str, object]]:
    return list(table(metrics(rows_of(text.splitlines()), Path("ncu.csv")), Notes()).to_pylist())


def printed(*metrics_: tuple[str, str]) -> list[dict[str, object]]:
    """The rows of metrics with these units and values."""
    cells = [f'"0","gemm","","m","{unit}","{value}"' for unit, value in metrics_]
    return rows(
        "\n".join(['"ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"', *cells])
    )


@pytest.mark.parametrize("text", [ENGLISH, GERMAN])
def test_the_long_form_in_both_locales(text: str) -> None:
    found = rows(text)
    assert [(row["metric"], row["unit"], row["value"]) for row in found] == [
        ("Duration", "ns", 1_024_500.0), ("Compute (SM) Throughput", "%", 81.25),
        ("Memory Throughput", "%", 12.0),
    ]  # fmt: skip
    assert {(row["launch"], row["kernel"], row["process"], row["section"]) for row in found} == {
        (0, "gemm", "42", "SpeedOfLight")
    }
    sizes = [found[0][f"{name}_{axis}"] for name in ("grid", "block") for axis in "xyz"]
    assert sizes == [8, 2, 1, 256, 1, 1]


def test_the_raw_page() -> None:
    found = rows(WIDE)
    assert [(row["launch"], row["metric"], row["unit"], row["value"]) for row in found] == [
        (launch, metric, unit, value)
        for launch, values in enumerate(
            [(1_500_000.0, 81.25, 12.0, 1_215_000.0), (None, 80.0, 13.0, 1_215_001.0)]
        )
        for (metric, unit), value in zip(
            [
                ("gpu__time_duration.sum", "ns"),
                ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
                ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
                ("sm__cycles.sum", "cycle"),
            ],
            values,
            strict=True,
        )
    ]


@pytest.mark.parametrize(
    ("texts", "decimal"),
    [
        (["1,215,000,000.00"], "."), (["1.215.000,00"], ","), (["1,215"], "."), (["1,215", "0,5"], ","),
        (["1.215.000"], ","), (["1,215,000"], "."), (["12.3456"], "."), (["n/a", "7"], "."), (["12,34"], ","),
    ],
)  # fmt: skip
def test_the_locale_of_a_file(texts: list[str], decimal: str) -> None:
    last = printed(*(("", text) for text in (*texts, "7,125", "7.125")))[-2:]
    assert [row["value"] for row in last] == ([7125, 7.125] if decimal == "." else [7.125, 7125])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,215.5", 1215.5), ("1 21 500", None), ("1 215.5", 1215.5), ("1\u202f215", 1215.0),
        ("1'215", 1215.0),
        ("-3", -3.0), ("1e3", 1000.0), ("CachePreferNone", None), ("", None), ("1.2.3", None),
        ("inf", float("inf")),
    ],
)  # fmt: skip
def test_numbers(text: str, value: float | None) -> None:
    row = printed(("", "0.5"), ("", text))[1]
    assert (row["value"], row["text"]) == (value, None if value is not None else text or None)


@pytest.mark.parametrize(
    ("unit", "base"),
    [
        ("usecond", ("ns", 1e3)), ("second", ("ns", 1e9)), ("Mbyte", ("byte", 1e6)),
        ("byte/block", ("byte/block", 1)),
        ("Gbyte/second", ("byte/second", 1e9)), ("cycle/nsecond", ("cycle/second", 1e9)), ("%", ("%", 1)),
        ("Kbyte/block", ("byte/block", 1e3)), ("inst", ("inst", 1)), ("Ghz", ("hz", 1e9)), ("", ("", 1)),
        ("register/thread", ("register/thread", 1)), ("Kinst", ("inst", 1e3)), ("GHz", ("Hz", 1e9)),
    ],
)  # fmt: skip
def test_base_units(unit: str, base: tuple[str, float]) -> None:
    (row,) = printed((unit, "1"))
    assert (row["unit"] or "", row["value"]) == base


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", *deep("==PROF== No kernels were profiled.\n")])
def test_a_file_without_the_table_is_refused(text: str) -> None:
    with pytest.raises(TraceFormatError, match="no header of Nsight Compute CSV"):
        rows(text)


def beside_a_trace(tmp_path: Path) -> Path:
    """A folder with a trace and metrics of its kernels."""
    import sketch

    sketch.write(TRACE, tmp_path / "traces")
    folder = tmp_path / "traces" / "a"
    (folder / "rank0.ncu.csv").write_text(ENGLISH)
    (folder / "notes.csv").write_text("not,a,table\n")
    return folder


@pytest.mark.deep
def test_a_report_has_metrics_and_commands(tmp_path: Path) -> None:
    assert command("ingest", beside_a_trace(tmp_path), "-w", tmp_path / "w").code == 0
    page = command("report", "a", "-w", tmp_path / "w", "-o", tmp_path / "page.html")
    assert page.code == 0, page.err
    text = (tmp_path / "page.html").read_text()
    assert "Nsight Compute" in text and "ncu --kernel-name gemm" in text


def test_metrics_beside_a_trace(tmp_path: Path) -> None:
    folder = beside_a_trace(tmp_path)
    taken = command("ingest", folder, "-w", tmp_path / "w")
    assert taken.code == 0, taken.out + taken.err
    wh = tw.open(tmp_path / "w")
    (row,) = wh.analyze("kernel_limits").rows()
    assert (row["kernel"], row["limited_by"], row["match"], row["trace_sum_ns"]) == (
        "gemm",
        "compute",
        "order",
        100,
    )
    assert (row["compute_share"], row["memory_share"], row["replay_mean_ns"]) == (0.8125, 0.12, 1_024_500)
    (worst,) = wh.analyze("ncu_commands").rows()
    assert worst["command"].startswith("ncu --kernel-name gemm --launch-skip 0 --launch-count 1 ")
    again = command("ingest", folder, "-w", tmp_path / "w")
    assert again.code == 0, again.err


def test_a_file_alone_is_a_rank_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(WIDE)
    taken = command("ingest", tmp_path / "metrics.csv", "--run", "r", "-w", tmp_path / "w")
    assert taken.code == 0, taken.out + taken.err
    assert "tw show kernel_limits" in taken.out + taken.err
    (row,) = tw.open(tmp_path / "w").analyze("kernel_limits").rows()
    assert (row["profiled_count"], row["limited_by"], row["match"], row["trace_count"]) == (
        2,
        "compute",
        None,
        0,
    )
