"""Run selectors: matches, their order, and error messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.runs.selection import Match, match_runs, parse_labels
from tracewarehouse.storage.model import Brief

EPOCH = 1_750_000_000_000_000_000


class Index:
    def __init__(self, *runs: Brief) -> None:
        self.runs = {each.run: each for each in runs}
        self.read: list[str] = []

    def find(self, run: str, number: int | None) -> str | None:
        return next((name for name in self.runs if name.casefold() == run.casefold()), None)

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(name for name in self.runs if name.startswith(prefix))

    def attributes(self, run: str) -> Brief:
        self.read.append(run)
        return self.runs[run]

    def removed(self, run: str) -> str | None:
        return "gone@v1" if run == "gone" else None


def test_a_removed_run_is_named_by_its_last_version() -> None:
    with pytest.raises(TwError) as error:
        match_runs(["gone"], Index())
    assert "removed; readable as gone@v1" in str(error.value.hint)


def run(name: str, start: int | None = None, at: str = "2025-06-01T00:00:00Z", **labels: str) -> Brief:
    return Brief(name, 1, labels, start, at)


RUNS = (
    run("fp8-on", EPOCH + 5, commit="3f2a", cluster="a"),
    run("fp8-off", EPOCH + 9, commit="77b1", cluster="a"),
    run("base", EPOCH + 9, cluster="b"),
)


def runs(index: Index, *selectors: str) -> list[str]:
    return [each.run for each in match_runs(selectors, index)]


def test_an_exact_name_matches_without_reading_versions() -> None:
    index = Index(*RUNS, run("fp8-on~2"))
    assert match_runs(["fp8-on"], index) == (Match("fp8-on"),)
    assert runs(index, "FP8-ON") == ["fp8-on"]
    assert index.read == []


def test_a_unique_prefix_matches_and_an_ambiguous_one_lists_the_matches() -> None:
    index = Index(*RUNS)
    assert runs(index, "fp8-of", "b") == ["fp8-off", "base"]
    with pytest.raises(TwError) as raised:
        runs(index, "fp8")
    assert raised.value.message == "'fp8' matches 2 runs"
    assert raised.value.hint == "use one of fp8-off, fp8-on"


def test_the_unique_end_of_a_name_matches_after_its_beginning() -> None:
    index = Index(run("a.traces"), run("b.traces"), run("traces-of-c"), run("old"))
    assert runs(index, "b.traces", "traces", "d") == ["b.traces", "traces-of-c", "old"]
    assert match_runs(["a.traces@v2", "c@v3"], index) == (Match("a.traces", 2), Match("traces-of-c", 3))
    with pytest.raises(TwError, match="'.traces' matches 2 runs"):
        runs(index, ".traces")
    with pytest.raises(TwError) as raised:  # removed: no other run answers
        runs(Index(run("be.gone")), "gone")
    assert "removed" in str(raised.value.hint)


def test_a_name_with_characters_that_ingest_replaces_matches_what_it_stores() -> None:
    index = Index(*RUNS, run("pr-feature-x"))
    assert match_runs(["pr-feature/x"], index) == (Match("pr-feature-x"),)
    assert match_runs(["pr-feature/x@v2"], index) == (Match("pr-feature-x", 2),)
    with pytest.raises(UnknownName) as raised:
        runs(index, "pr-feature/y")
    assert raised.value.message == "unknown run: pr-feature/y"
    assert raised.value.hint == "did you mean pr-feature-x?"


def test_an_unknown_name_suggests_close_matches() -> None:
    with pytest.raises(UnknownName) as raised:
        runs(Index(*RUNS), "pf8-on")
    assert raised.value.message == "unknown run: pf8-on"
    assert raised.value.hint is not None and "fp8-on" in raised.value.hint


def test_errors_in_an_empty_warehouse_suggest_ingest() -> None:
    with pytest.raises(UnknownName) as raised:
        runs(Index(), "a")
    assert raised.value.hint == "the warehouse is empty; wh.ingest(PATH) ingests traces"
    with pytest.raises(UnknownName, match="unknown run: @latest"):
        runs(Index(), "@latest")
    with pytest.raises(UnknownName) as raised:
        runs(Index(run("a")), "@previous")
    assert raised.value.hint == "the warehouse has one run"


def test_latest_and_previous_are_by_start_time_then_by_name() -> None:
    assert runs(Index(*RUNS), "@latest", "@previous") == ["fp8-off", "base"]


def test_runs_with_relative_times_are_ordered_by_time_of_ingest() -> None:
    index = Index(
        run("late", 5_000, at="2026-01-01T00:00:00+00:00"),
        run("early", 9_000, at="2024-01-01T00:00:00Z"),
        run("none", None, at="2025-01-01T00:00:00.5+00:00"),
    )
    assert runs(index, "@latest", "@previous") == ["late", "none"]


def test_labels_select_runs_in_time_order() -> None:
    index = Index(*RUNS)
    assert runs(index, "label:cluster=a") == ["fp8-on", "fp8-off"]
    assert runs(index, "label:cluster=a,commit=77b1") == ["fp8-off"]
    with pytest.raises(UnknownName) as raised:
        runs(index, "label:cluster=c")
    assert raised.value.hint is not None and "label:cluster=a" in raised.value.hint
    with pytest.raises(TwError, match="not a label: cluster"):
        runs(index, "label:cluster")


def test_an_older_version_is_selected_by_number() -> None:
    index = Index(*RUNS)
    assert match_runs(["fp8-on@v3", "base"], index) == (Match("fp8-on", 3), Match("base"))
    with pytest.raises(TwError, match="run base was selected in two versions"):
        match_runs(["base", "base@v1"], index)


def test_a_run_matched_twice_is_returned_once() -> None:
    assert runs(Index(*RUNS), "base", "label:cluster=b", "b") == ["base"]


def test_an_unknown_at_selector_suggests_a_known_one() -> None:
    with pytest.raises(UnknownName) as raised:
        runs(Index(*RUNS), "@lastest")
    assert raised.value.hint == "did you mean @latest?"


def test_label_values_may_contain_an_equals_sign() -> None:
    assert parse_labels(["flags=--a=b", "x = y "]) == {"flags": "--a=b", "x": "y"}
    with pytest.raises(TwError):
        parse_labels(["=b"])


def test_globs_match_names_and_labels_in_time_order() -> None:
    index = Index(*RUNS)
    assert runs(index, "fp8-*") == ["fp8-on", "fp8-off"]
    assert runs(index, "?ase") == ["base"]
    assert runs(index, "label:cluster=*") == ["fp8-on", "base", "fp8-off"]
    assert runs(index, "label:cluster=*,commit=7*") == ["fp8-off"]


def test_a_list_selects_each_of_its_parts() -> None:
    index = Index(*RUNS)
    assert runs(index, "base,fp8-on") == ["base", "fp8-on"]
    assert runs(index, "label:cluster=a,commit=3f2a,base") == ["fp8-on", "base"]
    assert runs(index, "fp8-o*,@latest") == ["fp8-on", "fp8-off"]


def test_a_glob_without_a_match_says_so() -> None:
    with pytest.raises(UnknownName) as raised:
        runs(Index(*RUNS), "fp8-x*")
    assert raised.value.message == "unknown run: fp8-x*"
    with pytest.raises(UnknownName):
        runs(Index(*RUNS), "label:cluster=z*")
    with pytest.raises(UnknownName):
        runs(Index(*RUNS), "base,nothing")
