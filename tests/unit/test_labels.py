"""`tw check` against labels of real traces that were written without its answers (`tests/data/labels`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import real_traces
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.findings import UNEXPLAINED

LABELS = {
    path.stem: tomllib.loads(path.read_text())
    for path in Path(__file__).parents[1].glob("data/labels/*.toml")
}
TRACES = real_traces()
RULES = {each.name for each in Catalog.load().rules()}
# A problem for which the labels have no name: a finding of a rule that no label names.
OTHER = "other"
NAMED = {
    kind
    for label in LABELS.values()
    for key in ("must", "may", "must_not")
    for each in label.get(key, ())
    for kind in each["kinds"]
}


def kind(rule: str) -> str:
    """The name that labels have for the findings of a rule."""
    return rule if rule in NAMED else OTHER


def missed(label: Mapping[str, Any], found: Sequence[str]) -> list[list[str]]:
    """The problems of a label that no finding names; a finding names one problem."""
    left = list(found)
    unmet = []
    for problem in sorted(label.get("must", ()), key=lambda problem: len(problem["kinds"])):
        named = next((each for each in left if each in problem["kinds"]), None)
        if named is None:
            unmet.append(problem["kinds"])
        else:
            left.remove(named)
    return unmet


def wrong(label: Mapping[str, Any], found: Sequence[str]) -> list[str]:
    """The findings that a label does not allow."""
    allowed = {kind for key in ("must", "may") for each in label.get(key, ()) for kind in each["kinds"]}
    return [each for each in found if each not in allowed.union(label.get("also", ()))]


def test_labels_are_complete() -> None:
    assert len(LABELS) >= 30
    for name, label in LABELS.items():
        assert set(label) <= {"trace", "summary", "must", "may", "must_not", "also"}, name
        assert len(label.get("may", ())) <= 1, name
        allowed = {kind for key in ("must", "may") for each in label.get(key, ()) for kind in each["kinds"]}
        forbidden = {kind for each in label.get("must_not", ()) for kind in each["kinds"]}
        assert not allowed & forbidden and allowed | forbidden <= RULES | {OTHER}, name


@pytest.mark.deep
@pytest.mark.skipif(TRACES is None, reason="needs the real traces")
def test_findings_are_those_of_the_labels(tmp_path: Path) -> None:
    assert TRACES is not None
    warehouse = tw.open(tmp_path)
    for name, label in LABELS.items():
        warehouse.ingest(*(TRACES / each for each in label["trace"]), run=name)
    checked = warehouse.check()
    found: dict[str, list[str]] = {name: [] for name in LABELS}
    for row in checked.rows():
        names = found[row["run_id"]]
        if row["severity"] in ("warning", "critical") and kind(row["rule"]) not in names:
            names.append(kind(row["rule"]))
    unmet = {name: each for name, label in LABELS.items() if (each := missed(label, found[name]))}
    extra = {name: each for name, label in LABELS.items() if (each := wrong(label, found[name]))}
    problems = [name for name, label in LABELS.items() if label.get("must")]
    first = [
        name for name in problems if found[name][:1] and found[name][0] in LABELS[name]["must"][0]["kinds"]
    ]
    unexplained = [each for each in checked.notices if each.startswith(UNEXPLAINED)]
    assert sum(map(len, unmet.values())) <= 2, unmet
    assert sum(map(len, extra.values())) <= 2, extra
    assert 10 * len(unexplained) <= len(LABELS), unexplained
    assert 10 * len(first) >= 9 * len(problems), set(problems).difference(first)
