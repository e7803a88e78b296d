"""Every file of the corpus: what becomes of it, that it stops no other, and that it takes little."""

from __future__ import annotations

import resource
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from hostile.corpus import GOOD, Hostile, corpus
from ingesting import take
from storage_sources import context
from tracewarehouse.ingest.outcome import FileOutcome
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

CORPUS = corpus()
_STORED = {"intact", "repaired", "damaged"}
_MOST_SECONDS = 30.0  # of CPU for all; `test_bombs` bounds single files
_MOST_BYTES = 1_000_000_000


def ingest(root: Path, paths: list[Path]) -> tuple[list[FileOutcome], float, int]:
    """The outcomes, the CPU time, and the most memory of this process or a child."""
    files = list(take(root, *paths, jobs=2).files)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    return files, seconds, max(each.ru_maxrss for each in used) * 1024


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, FileOutcome]]:
    """A warehouse that was given all of them, and one good file, in a single call."""
    folder, root = tmp_path_factory.mktemp("hostile"), tmp_path_factory.mktemp("warehouse") / "wh"
    paths = []
    for each in [*CORPUS, Hostile("zz-good", GOOD, "intact", 2)]:
        path = folder / each.name / each.file_name
        path.parent.mkdir()
        path.write_bytes(each.data)
        paths.append(path)
    # In a new process: this one and its children may have needed more memory for other tests.
    with ProcessPoolExecutor(1, mp_context=context()) as pool:
        files, seconds, most_bytes = pool.submit(ingest, root, paths).result()
    assert seconds < _MOST_SECONDS
    assert most_bytes < _MOST_BYTES
    return root, {file.path.parent.name: file for file in files}


def test_there_are_a_hundred() -> None:
    names = [each.name for each in CORPUS]
    assert len(names) == len(set(names)) >= 100


@pytest.mark.parametrize("each", CORPUS, ids=lambda each: each.name)
def test_its_outcome(each: Hostile, ingested: tuple[Path, dict[str, FileOutcome]]) -> None:
    outcome = ingested[1][each.name]
    assert "unexpected" not in (outcome.reason or "") and "Error" not in (outcome.reason or "")
    if each.state == "any":
        assert outcome.state in (*_STORED, "refused", "skipped")
        return
    stored = outcome.content.events if outcome.content else None
    assert (outcome.state, stored) == (each.state, each.events), outcome.reason


def test_the_warehouse_is_whole(ingested: tuple[Path, dict[str, FileOutcome]]) -> None:
    root, outcomes = ingested
    assert outcomes["zz-good"].state == "intact"
    assert Store.open(root).verify() == []
    counts = Warehouse(root).query("SELECT run_id, count(*) AS n FROM events GROUP BY run_id").rows()
    assert {row["run_id"]: row["n"] for row in counts} == {
        outcome.run: outcome.content.events
        for outcome in outcomes.values()
        if outcome.state in _STORED and outcome.content and outcome.run != "memory-timeline"
    }
