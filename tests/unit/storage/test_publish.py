"""Outcomes of publishing: added, same, replaced, conflict, labels, removed, pending."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from storage_sources import by_rank, commit, seen
from tracewarehouse.errors import RunExists, UnknownName
from tracewarehouse.storage import layout
from tracewarehouse.storage.layout import group_uid
from tracewarehouse.storage.model import Changes, RunVersion
from tracewarehouse.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open_or_create(tmp_path / "warehouse", tool="0.0")


@dataclass(frozen=True)
class Brought:
    """The version that a call wrote, and the outcome of each rank."""

    version: RunVersion | None
    outcome: dict[int, str]
    pending: tuple[int, int] | None


def bring(store: Store, *ranks: int, labels: Any = None, **said: Any) -> Brought:
    """Commits ranks and publishes them in one call."""
    names = ("replace", "expected_ranks", "begins_with", "rebuilt")
    options = {name: said.pop(name) for name in names if name in said}
    sources = tuple(commit(store, rank, **said) for rank in ranks)
    done = store.publish(said.get("run", "run"), Changes(sources=sources, labels=labels or {}, **options))
    return Brought(done.version, by_rank(done, sources), done.pending)


def test_a_published_version_is_read_back_unchanged(store: Store) -> None:
    done = bring(store, 1, 0, labels={"commit": "3f2a"})
    assert done.outcome == {0: "added", 1: "added"}
    fresh = Store.open(store.folder).newest("run")
    assert fresh is not None
    assert fresh == done.version
    assert (fresh.number, fresh.ranks, fresh.labels, fresh.tool) == (1, (0, 1), {"commit": "3f2a"}, "0.0")
    assert fresh.sources[1].facts["start_ns"] == 2**60 + 1
    assert seen(store) == {0: ["a"] * 40, 1: ["a"] * 40}


def test_the_brief_of_a_run_is_read_from_its_index_entry(store: Store) -> None:
    odd = {"tracewarehouse.brief": "tracewarehouse.brief\x18 'é'" * 50}
    done = bring(store, 1, 0, labels=odd)
    bring(store, 2, run="other")
    store.remove("other")
    fresh = Store.open(store.folder)
    assert done.version is not None and fresh.briefs() == (done.version.brief,)
    assert fresh.briefs() == (done.version.brief,)
    assert (done.version.brief.labels, done.version.brief.start_ns) == (odd, 2**60)


def test_the_layout_is_that_of_the_design(store: Store) -> None:
    source = commit(store, 3)
    store.publish("run", Changes(sources=(source,)))
    group = group_uid([source.uid])
    found = {str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file()}
    assert found == {
        "_tw/warehouse.json",
        f"_tw/commits/run/000003-000003-{group}-{source.attempt}.json",
        "_tw/versions/run/000001.json",
        "_tw/index/runs/run.json",
        f"data/events/run/000003-{group}-{source.attempt}.parquet",
        f"data/kernels/run/000003-{group}-{source.attempt}.parquet",
    }


def test_committed_is_not_published(store: Store) -> None:
    commit(store, 0)
    assert store.runs() == ()
    assert store.newest("run") is None


def test_empty_tables_are_not_written(store: Store) -> None:
    bring(store, 0, tables={"events": 5, "counters": 0})
    assert not (store.folder / "data" / "counters").exists()
    version = store.newest("run")
    assert version is not None
    assert version.scan_plan("counters") == ()


def test_the_same_again_writes_nothing(store: Store) -> None:
    bring(store, 0, 1, labels={"a": "b"})
    again = bring(store, 0, 1, labels={"a": "b"})
    assert again.version is None
    assert again.outcome == {0: "same", 1: "same"}
    assert store.versions("run") == (1,)


def test_other_content_needs_replace_and_can_be_put_back(store: Store) -> None:
    bring(store, 0, 1)
    refused = bring(store, 0, content="b")
    assert (refused.version, refused.outcome) == (None, {0: "conflict"})
    assert bring(store, 0, content="b", replace=True).outcome == {0: "replaced"}
    assert seen(store) == {0: ["b"] * 40, 1: ["a"] * 40}
    assert bring(store, 0, content="a", replace=True).outcome == {0: "replaced"}
    assert seen(store) == {0: ["a"] * 40, 1: ["a"] * 40}
    assert store.versions("run") == (1, 2, 3)
    assert store.get("run", 2).sources[0].digest == "b-0"


def test_one_call_keeps_what_fits_beside_a_conflict(store: Store) -> None:
    bring(store, 0)
    sources = (commit(store, 0, content="b"), commit(store, 1))
    assert by_rank(store.publish("run", Changes(sources=sources)), sources) == {0: "conflict", 1: "added"}
    assert seen(store) == {0: ["a"] * 40, 1: ["a"] * 40}


def test_another_reader_version_replaces(store: Store) -> None:
    bring(store, 0)
    assert bring(store, 0, reader=2).outcome == {0: "replaced"}
    assert bring(store, 0, reader=2).outcome == {0: "same"}


@pytest.mark.parametrize(
    ("new", "begins", "outcome"),
    [
        ({"status": "intact", "text_bytes": 10}, False, "replaced"),
        ({"status": "repaired", "text_bytes": 10}, False, "replaced"),
        ({"status": "damaged", "text_bytes": 2000}, True, "replaced"),
        ({"status": "damaged", "text_bytes": 2000}, False, "conflict"),
        ({"status": "damaged", "text_bytes": 1000}, True, "conflict"),
    ],
)
def test_a_damaged_source_is_replaced(store: Store, new: dict[str, Any], begins: bool, outcome: str) -> None:
    bring(store, 0, status="damaged")
    requested = []

    def begins_with(stored: Any, other: Any) -> bool:
        requested.append((stored.digest, other.digest))
        return begins

    assert bring(store, 0, content="b", begins_with=begins_with, **new).outcome == {0: outcome}
    assert requested in ([], [("a-0", "b-0")])


def test_an_intact_source_is_not_replaced_by_a_longer_one(store: Store) -> None:
    bring(store, 0)
    longer = bring(store, 0, content="b", text_bytes=2000, begins_with=lambda *_: True)
    assert longer.outcome == {0: "conflict"}


def test_rebuilt_tables_replace_those_of_the_same_source_only(store: Store) -> None:
    bring(store, 0)
    assert bring(store, 0, tables={"events": 40}, rebuilt=True).outcome == {0: "replaced"}
    version = store.newest("run")
    assert version is not None
    assert version.summary.tables == {"events": (1,)}
    assert bring(store, 0, content="b", rebuilt=True).outcome == {0: "conflict"}
    assert bring(store, 5, rebuilt=True).outcome == {5: "conflict"}


def test_labels_are_set_changed_and_removed(store: Store) -> None:
    bring(store, 0, labels={"a": "1"})
    assert store.relabel("run", {"b": "2"}).version is not None
    assert store.relabel("run", {"b": "2"}).version is None
    store.relabel("run", {"a": None, "c": None})
    version = store.newest("run")
    assert version is not None
    assert version.labels == {"b": "2"}
    with pytest.raises(UnknownName):
        store.relabel("other", {"a": "1"})


def test_a_rank_can_be_dropped_and_added_again(store: Store) -> None:
    bring(store, 0, 1)
    store.publish("run", Changes(drop_ranks=(1, 7)))
    assert set(seen(store)) == {0}
    assert store.publish("run", Changes(drop_ranks=(1,))).version is None
    bring(store, 1)
    assert set(seen(store)) == {0, 1}


def test_a_removed_run_is_gone_and_can_come_again(store: Store) -> None:
    bring(store, 0, 1, labels={"a": "1"})
    assert store.remove("run").tombstone
    assert store.runs() == ()
    assert store.newest("run") is None
    with pytest.raises(UnknownName):
        store.remove("run")
    with pytest.raises(UnknownName):
        store.relabel("run", {"a": "1"})
    assert bring(store, 1).outcome == {1: "added"}
    version = store.newest("run")
    assert version is not None
    assert (version.number, version.ranks, version.labels) == (3, (1,), {})
    assert store.get("run", 1).ranks == (0, 1)
    with pytest.raises(UnknownName, match="run@v9"):
        store.get("run", 9)


def test_names_are_unique_without_regard_to_case(store: Store) -> None:
    bring(store, 0, run="FP8-On")
    assert store.spelling("fp8-on") == "FP8-On"
    with pytest.raises(RunExists, match="FP8-On"):
        bring(store, 1, run="fp8-on")
    with pytest.raises(RunExists, match="FP8-On"):
        bring(store, 1, run="fp8-on", expected_ranks=2)
    assert store.pending("fp8-on") == ()
    assert store.runs() == ("FP8-On",)
    store.remove("fp8-ON")
    bring(store, 0, run="fp8-on")
    assert store.runs() == ("fp8-on",)


def test_sources_wait_until_the_run_has_its_ranks(store: Store) -> None:
    first = bring(store, 0, expected_ranks=3)
    assert (first.version, first.outcome, first.pending) == (None, {0: "pending"}, (1, 3))
    assert store.newest("run") is None
    assert bring(store, 2, expected_ranks=3).pending == (2, 3)
    assert [one.source.rank for one in store.pending_runs()["run"]] == [0, 2]
    last = bring(store, 1, expected_ranks=3)
    assert (last.outcome, last.pending) == ({1: "added"}, None)
    assert set(seen(store)) == {0, 1, 2}
    assert store.versions("run") == (1,)
    assert store.pending_runs() == {}


def test_labels_of_calls_that_waited_are_kept(store: Store) -> None:
    bring(store, 0, labels={"commit": "3f2a", "who": "first"}, expected_ranks=3)
    bring(store, 1, labels={"who": "second"}, expected_ranks=3)
    bring(store, 1, content="b", labels={"refused": "yes"}, expected_ranks=3)
    bring(store, 2, expected_ranks=3)
    version = store.newest("run")
    assert version is not None
    assert version.labels == {"commit": "3f2a", "who": "second"}


def test_the_same_source_twice_counts_once_while_it_waits(store: Store) -> None:
    bring(store, 0, expected_ranks=2)
    again = bring(store, 0, expected_ranks=2)
    assert (again.outcome, again.pending) == ({0: "same"}, (1, 2))
    other = bring(store, 0, content="b", expected_ranks=2)
    assert (other.outcome, other.pending) == ({0: "conflict"}, (1, 2))
    bring(store, 1, expected_ranks=2)
    assert seen(store) == {0: ["a"] * 40, 1: ["a"] * 40}


def test_published_ranks_count_toward_the_expected(store: Store) -> None:
    bring(store, 0)
    assert bring(store, 1, expected_ranks=3).pending == (2, 3)
    assert bring(store, 0, expected_ranks=3).outcome == {0: "same"}
    assert bring(store, 2, expected_ranks=3).pending is None
    assert set(seen(store)) == {0, 1, 2}


def test_removing_drops_pending_sources(store: Store) -> None:
    bring(store, 0, expected_ranks=2)
    store.remove("run")
    assert store.pending("run") == ()
    assert bring(store, 1, expected_ranks=2).pending == (1, 2)
    bring(store, 0, expected_ranks=2)
    assert set(seen(store)) == {0, 1}


def test_what_a_removal_or_replacement_settled_waits_no_more(store: Store) -> None:
    bring(store, 0, expected_ranks=2)
    bring(store, 1, expected_ranks=2)
    bring(store, 0, content="b", replace=True, expected_ranks=2)
    assert store.pending("run") == ()
    assert bring(store, 1, expected_ranks=2).outcome == {1: "same"}
    assert seen(store)[0] == ["b"] * 40
    bring(store, 2, expected_ranks=9)
    store.remove("run")
    assert store.pending("run") == ()
    assert bring(store, 2, expected_ranks=2).pending == (1, 2)


def test_a_seal_publishes_what_waits(store: Store) -> None:
    bring(store, 0, labels={"a": "1"}, expected_ranks=3)
    bring(store, 1, labels={"b": "2"}, expected_ranks=3)
    done = store.publish("run", Changes(labels={"c": "3"}, seal=True))
    assert done.version is not None and len(done.waited) == 2
    newest = done.version
    assert (newest.ranks, newest.labels, newest.expected_ranks) == ((0, 1), {"a": "1", "b": "2", "c": "3"}, 3)
    assert store.publish("run", Changes(seal=True)).version is None
    with pytest.raises(UnknownName):
        store.publish("other", Changes(seal=True))


def test_a_source_of_a_killed_call_is_found_until_it_is_published(store: Store) -> None:
    source = commit(store, 0)
    assert store.unpublished("run") == (source,)
    store.publish("run", Changes(sources=(source,)))
    assert store.unpublished("run") == ()
    other = commit(store, 1)
    store.path(other.files[0].path).unlink()
    assert store.unpublished("run") == ()


def test_a_damaged_commit_of_a_killed_call_is_no_obstacle(store: Store) -> None:
    lost = commit(store, 0)
    path = store.folder / layout.commit("run", lost.commit)
    path.write_bytes(path.read_bytes()[:-9])
    found = commit(store, 0)
    assert found.commit != lost.commit
    assert store.publish("run", Changes(sources=(found,))).outcome == {found.name: "added"}


def test_a_source_whose_files_are_gone_is_not_published(store: Store) -> None:
    source = commit(store, 0)
    store.path(source.files[0].path).unlink()
    with pytest.raises(Exception, match="removed by tw clean of another process before rank 0 was published"):
        store.publish("run", Changes(sources=(source,)))
    assert store.runs() == ()
