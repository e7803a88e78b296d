"""Selectors: which runs a text means, in which order, and what is said when it means none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.runs.selectors import Known, Pick, parse_labels, pick

EPOCH = 1_750_000_000_000_000_000


class Shelf:
    def __init__(self, *runs: Known) -> None:
        self.runs = {each.run: each for each in runs}
        self.read: list[str] = []

    def find(self, run: str, number: int | None) -> str | None:
        return next((name for name in self.runs if name.casefold() == run.casefold()), None)

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(name for name in self.runs if name.startswith(prefix))

    def known(self, run: str) -> Known:
        self.read.append(run)
        return self.runs[run]


def run(name: str, start: int | None = None, at: str = "2025-06-01T00:00:00Z", **labels: str) -> Known:
    return Known(name, labels, start, at)


SHELF = (
    run("fp8-on", EPOCH + 5, commit="3f2a", cluster="a"),
    run("fp8-off", EPOCH + 9, commit="77b1", cluster="a"),
    run("base", EPOCH + 9, cluster="b"),
)


def runs(shelf: Shelf, *selectors: str) -> list[str]:
    return [each.run for each in pick(selectors, shelf)]


def test_a_name_is_taken_as_it_is_and_reads_no_version() -> None:
    shelf = Shelf(*SHELF, run("fp8-on~2"))
    assert pick(["fp8-on"], shelf) == (Pick("fp8-on"),)
    assert runs(shelf, "FP8-ON") == ["fp8-on"]
    assert shelf.read == []


def test_a_unique_prefix_will_do_and_an_ambiguous_one_names_the_choices() -> None:
    shelf = Shelf(*SHELF)
    assert runs(shelf, "fp8-of", "b") == ["fp8-off", "base"]
    with pytest.raises(TwError) as told:
        runs(shelf, "fp8")
    assert told.value.message == "fp8 is the beginning of 2 runs"
    assert told.value.hint == "one of fp8-off, fp8-on"


def test_an_unknown_name_brings_close_ones() -> None:
    with pytest.raises(UnknownName) as told:
        runs(Shelf(*SHELF), "pf8-on")
    assert told.value.message == "unknown run: pf8-on"
    assert told.value.hint is not None and "fp8-on" in told.value.hint


def test_an_empty_warehouse_says_what_to_do() -> None:
    with pytest.raises(UnknownName) as told:
        runs(Shelf(), "a")
    assert told.value.hint == "the warehouse is empty; wh.ingest(PATH) ingests traces"
    with pytest.raises(UnknownName, match="unknown run: @latest"):
        runs(Shelf(), "@latest")
    with pytest.raises(UnknownName) as told:
        runs(Shelf(run("a")), "@previous")
    assert told.value.hint == "the warehouse holds one run only"


def test_latest_and_previous_go_by_start_and_ties_by_name() -> None:
    assert runs(Shelf(*SHELF), "@latest", "@previous") == ["fp8-off", "base"]


def test_a_start_that_is_no_wall_clock_gives_way_to_the_time_of_ingest() -> None:
    shelf = Shelf(
        run("late", 5_000, at="2026-01-01T00:00:00+00:00"),
        run("early", 9_000, at="2024-01-01T00:00:00Z"),
        run("none", None, at="2025-01-01T00:00:00.5+00:00"),
    )
    assert runs(shelf, "@latest", "@previous") == ["late", "none"]


def test_labels_select_a_set_in_order_of_time() -> None:
    shelf = Shelf(*SHELF)
    assert runs(shelf, "label:cluster=a") == ["fp8-on", "fp8-off"]
    assert runs(shelf, "label:cluster=a,commit=77b1") == ["fp8-off"]
    with pytest.raises(UnknownName) as told:
        runs(shelf, "label:cluster=c")
    assert told.value.hint is not None and "label:cluster=a" in told.value.hint
    with pytest.raises(TwError, match="not a label: cluster"):
        runs(shelf, "label:cluster")


def test_an_older_version_is_asked_for_by_number() -> None:
    shelf = Shelf(*SHELF)
    assert pick(["fp8-on@v3", "base"], shelf) == (Pick("fp8-on", 3), Pick("base"))
    with pytest.raises(TwError, match="run base is asked for in two versions"):
        pick(["base", "base@v1"], shelf)


def test_a_run_selected_twice_comes_once() -> None:
    assert runs(Shelf(*SHELF), "base", "label:cluster=b", "b") == ["base"]


def test_an_unknown_at_word_is_named() -> None:
    with pytest.raises(UnknownName) as told:
        runs(Shelf(*SHELF), "@lastest")
    assert told.value.hint == "did you mean @latest?"


def test_labels_may_hold_an_equals_sign() -> None:
    assert parse_labels(["flags=--a=b", "x = y "]) == {"flags": "--a=b", "x": "y"}
    with pytest.raises(TwError):
        parse_labels(["=b"])
