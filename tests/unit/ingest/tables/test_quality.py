"""Data-quality rules of the file reader and of events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from activity_rows import call, columns_of, gpu, slice_
from test_random_rules import evidence_of

from tracewarehouse.formats.base import Defect, Loss, Outcome, Redaction
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.quality import FiredRule, data_quality, fired_rules, timeline_rules

CliResult = dict[str, tuple[Any, ...]]


def outcome(**more: Any) -> Outcome:
    return Outcome(digest="", header_json="{}", text_bytes=0, stored_bytes=0, **more)


def quality(columns: Columns | None, of_events: list[FiredRule] | None = None, **more: Any) -> CliResult:
    """Rule → severity, rows, time, example."""
    table = data_quality(of_events or [], columns, outcome(**more), rules_of())
    return {row.pop("rule"): tuple(row.values()) for row in table.to_pylist()}


def rules(*rows: dict[str, Any]) -> dict[str, tuple[int, int | None]]:
    """Rule → rows and time."""
    return {each.rule: (each.rows, each.ns) for each in fired_rules(evidence_of(columns_of(rows)))[0]}


def test_each_rule_of_streams_and_calls() -> None:
    rows = [
        slice_("op", 0, 10),
        slice_("late", 5, 10),
        slice_("op", 0, 10),
        slice_("odd", 60, 1, "no_such_category"),
        slice_("frame", 61, 1, "python_function", python_id=8, python_parent_id=5),
        call("cudaLaunchKernel", 20, 1, 1),
        gpu("a", 19, 10, 1, block_x=524288, block_y=1, block_z=1),
        gpu("b", 25, 10, 1),
        call("cudaLaunchKernel", 40, 1, 9),
        call("frobnicate", 45, 1, 2),
        gpu("c", 50, 1, 2),
        slice_(None, 0, None, None) | {"ph": None},
        slice_("flow", 1, None, "fwdbwd", flow_id="1") | {"ph": "f"},
    ]
    assert rules(*rows) == {
        "non_event": (1, None),
        "unknown_category": (1, 1),
        "duplicate_slice": (1, 10),
        "crossing_slice": (1, 5),
        "dangling_frame": (1, 1),
        "flow_without_start": (1, None),
        "many_activities_per_launch": (1, 10),
        "launch_without_gpu_activity": (1, 1),
        "unknown_launch": (1, 1),
        "start_before_launch": (1, 1),
        "stream_overlap": (1, 4),
        "invalid_block_size": (1, 10),
    }


def test_invalid_times() -> None:
    bad = {"dur_ns": None, "ts_ns": None}
    rows = [
        slice_("negative", 5, None, dur_text="-3"),
        slice_("no length", 5, None),
        slice_("zero", 0, None, ts_text="0.0") | bad,
        slice_("word", 0, None, ts_text="N/A") | bad,
        slice_("no start", 0, None) | bad,
        slice_("begin", 0, None) | bad | {"ph": "B"},
    ]
    assert rules(*rows) == {
        "negative_duration": (1, None), "epoch_zero": (1, None), "invalid_time": (3, None),
        "unpaired_begin_end": (1, None),
    }  # fmt: skip


def test_begin_and_end() -> None:
    rows = [
        slice_("a", 0, 3, end_id=1) | {"ph": "B"},
        slice_("a", 3, None) | {"ph": "E"},
        slice_("b", 4, None) | {"ph": "B"},
        slice_("c", 5, None) | {"ph": "E"},
    ]
    assert rules(*rows) == {"unpaired_begin_end": (2, None)}


@pytest.mark.parametrize("column", ["correlation", "external_id"])
@pytest.mark.parametrize(
    ("number", "reported"),
    [(0, False), (-1, True), (2**32 - 1, True), (2**63 - 1, True), (-2, False), (7, False)],
)
def test_sentinel_ids(column: str, number: int, reported: bool) -> None:
    assert ("sentinel_id" in rules(slice_("op", 0, 1) | {column: number})) == reported


def test_a_sentinel_links_nothing() -> None:
    largest = 2**32 - 1
    rows = [call("cudaLaunchKernel", n, 1, largest) for n in (0, 5)] + [gpu("a", 9, 1, largest)]
    assert rules(*rows) == {
        "launch_without_gpu_activity": (2, 2),
        "missing_launch": (1, 1),
        "sentinel_id": (3, None),
    }


def test_the_first_row_of_a_file_may_launch() -> None:
    rows = [call("cudaLaunchKernel", 20, 5, 1), gpu("a", 10, 2, 1), gpu("b", 30, 3, 1)]
    inner = call("cuLaunchKernel", 21, 1, 1, category="cuda_driver", raw_category="cuda_driver")
    assert rules(*rows, inner) == {"start_before_launch": (1, 10), "many_activities_per_launch": (1, 3)}


@pytest.mark.parametrize(
    ("block", "possible"),
    [
        ((1, 1, 1), True),
        ((1024, 1, 1), True),
        ((1025, 1, 1), False),
        ((0, 9, 9), False),
        ((2**40, 2**40, 1), False),
    ],
)
def test_threads_of_a_block(block: tuple[int, int, int], possible: bool) -> None:
    sides = dict(zip(("block_x", "block_y", "block_z"), block, strict=True))
    assert ("invalid_block_size" not in rules(gpu("a", 0, 1, **sides))) == possible


def test_duplicates_agree_in_all_compared_columns() -> None:
    one = slice_("op", 0, 10)
    others = [
        one | {"name": "x"},
        one | {"pid": "2"},
        one | {"tid": None},
        one | {"category": None, "raw_category": None},
    ]
    assert "duplicate_slice" not in rules(one, *others, one | {"ts_ns": 1, "dur_ns": 9})
    assert rules(one, one | {"raw_category": "Operator"}, one | {"args": "{}"})["duplicate_slice"] == (2, 20)


def test_time_beyond_64_bits_is_null() -> None:
    long_ = [slice_("op", 0, 2**62, "odd"), slice_("op", 1, 2**62 - 1, "odd")]
    assert rules(*long_)["unknown_category"] == (2, 2**63 - 1)
    assert rules(*long_, slice_("op", 2, 1, "odd"))["unknown_category"] == (3, None)


def test_findings_of_the_file_reader() -> None:
    losses = (
        Loss(900, 950, 3, "no JSON"),
        Loss(10, 20, None, "cut short"),
        Loss(30, 40, 0, "bytes of no event"),
        Loss(70, 70, 0, "no end"),
        Loss(60, 60, None, "a comma too many"),
    )
    redactions = (
        Redaction(12, "$.args.token", "key"),
        Redaction(None, "$.env", "key"),
        Redaction(2, "$.b", "aws"),
    )
    assert quality(None, losses=losses, redactions=redactions) == {
        "lost_events": ("error", 4, None, "bytes 10 to 20: cut short"),
        "skipped_bytes": ("warning", 1, None, "bytes 30 to 40: bytes of no event"),
        "repaired_file": ("warning", 2, None, "bytes 60 to 60: a comma too many"),
        "redacted_value": ("info", 3, None, "header $.env, #2 $.b, #12 $.args.token"),
    }


def test_examples_are_shortened() -> None:
    redactions = tuple(Redaction(n, "$.x" * 20, "key") for n in range(100))
    found = quality(
        columns_of([slice_("é" * 500, 0, 1)]), [FiredRule("crossing_slice", 1, 5, 0)], redactions=redactions
    )
    assert found["crossing_slice"] == ("info", 1, 5, "#0 " + "é" * 197)
    assert len(found["redacted_value"][3]) == 4000


def test_repaired_events() -> None:
    columns = columns_of(
        [slice_("a", 0, 1), slice_("b", 0, 1, repaired=True), slice_(None, 0, 1, repaired=True)]
    )
    assert quality(columns) == {"repaired_event": ("warning", 2, None, "#1 b")}
    assert quality(columns_of([slice_(None, 0, 1, repaired=True)])) == {
        "repaired_event": ("warning", 1, None, "#0")
    }


def test_findings_of_the_format() -> None:
    findings = (
        Defect("time_unit", 9, "a"),
        Defect("replaced_value", 1, "b"),
        Defect("replaced_value", 2, "c"),
    )
    assert quality(None, findings=(*findings, Defect("of_a_foreign_format", 1, "d"))) == {
        "of_a_foreign_format": ("info", 1, None, "d"),
        "replaced_value": ("info", 3, None, "b"),
        "time_unit": ("warning", 9, None, "a"),
    }


def test_timeline_rows_that_are_not_changes() -> None:
    elements = pa.array([None, '"fifty"', "[1.5]"], pa.string())
    of_events = list(timeline_rules(pa.table({"event_id": [4, 5, 6], "element": elements})))
    assert quality(None, of_events) == {"non_event": ("info", 2, None, "#5")}


def test_rows_come_by_severity_and_rule() -> None:
    losses = (Loss(1, 2, 1, "x"), Loss(3, 3, 0, "y"))
    of_events = [
        FiredRule("non_event", 1, None, 0),
        FiredRule("duplicate_slice", 1, 4, 0),
        FiredRule("invalid_time", 1, None, 0),
    ]
    assert list(quality(columns_of([slice_("a", 0, 1)]), of_events, losses=losses)) == [
        "lost_events", "duplicate_slice", "non_event", "invalid_time", "repaired_file"
    ]  # fmt: skip
