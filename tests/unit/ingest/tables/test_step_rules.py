"""Steps inferred from annotations by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from activity_rows import columns_of, slice_

import tracewarehouse as tw
from trace_texts import event, trace
from tracewarehouse.errors import ParamError
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.steps import find_step_annotations


def marks(
    *annotations: tuple[str, int, int], step_pattern: str | None = None, tid: str = "1", header: str = "{}"
) -> list[tuple[int, int]]:
    """(row, step) of annotations given as name, start and duration."""
    rows = [slice_(name, ts, dur, category="user_annotation", tid=tid) for name, ts, dur in annotations]
    (found,) = find_step_annotations(columns_of(rows, None), rules_of(), step_pattern, [header])
    return list(zip(found.rows.tolist(), found.step.tolist(), strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "step {}",
        "Step_{}",
        "train_step={}",
        "train step {}",
        "global_step#{}",
        "iter {}",
        "Iteration: {}",
        "batch {}",
    ],
)
def test_names_of_steps(name: str) -> None:
    assert marks((name.format(3), 0, 10), ("forward", 2, 3), (name.format(4), 10, 10)) == [(0, 3), (2, 4)]


@pytest.mark.parametrize("name", ["step[DECODE bs=32]", "substep {}", "forward {}", "stepping"])
def test_other_names(name: str) -> None:
    assert marks((name.format(1), 0, 10), (name.format(2), 10, 10)) == []


def test_profiler_steps_take_precedence() -> None:
    assert marks(("ProfilerStep#7", 0, 9), ("step 1", 0, 5), ("step 2", 5, 5)) == [(0, 7)]


def test_the_first_rule_with_two_steps_applies() -> None:
    found = marks(("step 1", 0, 50), ("iter 4", 0, 10), ("iter 5", 10, 10))
    assert found == [(1, 4), (2, 5)]


def test_the_outermost_annotation_counts() -> None:
    assert marks(("step 1", 0, 50), ("step 1", 5, 10), ("step 2", 50, 50), ("step 9", 60, 5)) == [
        (0, 1),
        (2, 2),
    ]


def test_numbers_must_rise() -> None:
    assert marks(("step 2", 0, 10), ("step 1", 10, 10)) == []


def test_a_pattern_replaces_the_rules() -> None:
    rows = (("ProfilerStep#7", 0, 9), ("epoch 1 it 5", 0, 5), ("epoch 1 it 6", 5, 5))
    assert marks(*rows, step_pattern=r"it (\d+)") == [(1, 5), (2, 6)]


def test_a_pattern_without_a_group_counts() -> None:
    assert marks(("work", 0, 9), ("other", 9, 1), ("work", 10, 9), step_pattern="^work$") == [(0, 0), (2, 1)]


LOOP = [("load", 100 * at, 10) for at in range(4)] + [("work", 100 * at + 10, 80) for at in range(4)]


@pytest.mark.parametrize(
    ("annotations", "steps"),
    [
        (LOOP, [(4 + at, at) for at in range(4)]),
        ([*LOOP, ("setup", -900, 850), ("work", 320, 20)], [(4 + at, at) for at in range(4)]),
        ([(name, ts, dur // 2) for name, ts, dur in LOOP], []),  # they cover less than half of the time
        ([*LOOP[4:6]], []),
        ([("all", -10, 900), *LOOP], [(5 + at, at) for at in range(4)]),
        ([(f"ncclAll::{name}", ts, dur) for name, ts, dur in LOOP], []),
        ([*LOOP, ("step 7", 0, 30), ("step 8", 40, 30)], [(8, 7), (9, 8)]),
    ],
)
def test_ranges_of_nsight_systems_that_repeat(
    annotations: list[tuple[str, int, int]], steps: list[tuple[int, int]]
) -> None:
    assert marks(*annotations, header='{"nsys": {}}') == steps
    assert marks(*annotations) == (steps if "step 7" in dict(a[:2] for a in annotations) else [])


def test_steps_of_an_ingested_trace(tmp_path: Path) -> None:
    events = [event(cat="user_annotation", name=f"loop {at}", ts=100 * at, dur=90) for at in range(3)]
    path = tmp_path / "run.json"
    path.write_bytes(trace(events))
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(path, run="run")
    assert warehouse.query("SELECT * FROM steps").rows() == []
    (file,) = warehouse.ingest(path, run="run", step_pattern=r"^loop (\d+)").files
    assert file.state == "intact"
    assert [row["step"] for row in warehouse.query("SELECT step FROM steps ORDER BY 1").rows()] == [0, 1, 2]
    (quality,) = warehouse.query("SELECT rows FROM data_quality WHERE rule = 'steps_inferred'").rows()
    assert quality["rows"] == 3
    assert [file.state for file in warehouse.ingest(path, run="run").files] == ["same"]


def test_an_invalid_pattern_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(trace([event()]))
    with pytest.raises(ParamError, match="not a regular expression"):
        tw.open(tmp_path / "warehouse").ingest(tmp_path / "run.json", step_pattern="(")
