"""Making and opening a warehouse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage_sources import processes
from tracewarehouse.errors import SchemaVersionError, TwError, WarehouseError
from tracewarehouse.storage.store import Store


def test_a_new_warehouse_has_format_id_and_salt(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "deep" / "warehouse")
    said = json.loads((store.folder / "_tw" / "warehouse.json").read_text())
    assert (said["format"], said["id"]) == (3, store.id)
    assert len(store.salt) == 32
    assert list((store.folder / "_tw" / "staging").iterdir()) == []
    again = Store.open(store.folder)
    assert (again.id, again.salt) == (store.id, store.salt)
    assert Store.open_or_create(store.folder).id == store.id


def create_and_report(root: str, reported: str) -> None:
    Path(reported).write_text(Store.open_or_create(Path(root)).id)


def test_eight_processes_make_one_warehouse(tmp_path: Path) -> None:
    reported = [tmp_path / f"reported-{number}" for number in range(8)]
    processes(create_and_report, [(str(tmp_path / "warehouse"), str(path)) for path in reported])
    assert len({path.read_text() for path in reported}) == 1


def test_a_training_job_may_have_filled_the_inbox_first(tmp_path: Path) -> None:
    (tmp_path / "inbox" / "run").mkdir(parents=True)
    (tmp_path / ".gitkeep").touch()
    assert Store.open_or_create(tmp_path).runs() == ()


def refusal(action: object) -> TwError:
    with pytest.raises(TwError) as caught:
        action()  # type: ignore[operator]
    assert caught.value.hint
    return caught.value


def test_a_file_is_no_warehouse(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    for action in (Store.open, Store.open_or_create):
        error = refusal(lambda action=action: action(path))
        assert isinstance(error, WarehouseError)
        assert error.message == f"{path}: a file, not a warehouse"
    assert isinstance(refusal(lambda: Store.open_or_create(path / "below")), WarehouseError)
    assert isinstance(refusal(lambda: Store.open(path / "below")), WarehouseError)


def test_a_folder_of_other_things_is_no_warehouse(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    assert "not a warehouse" in refusal(lambda: Store.open(tmp_path)).message
    assert "thesis.txt" in refusal(lambda: Store.open_or_create(tmp_path)).message
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / "inbox").mkdir()
    assert "traces of training jobs in the inbox" in refusal(lambda: Store.open(tmp_path)).message


def test_a_missing_warehouse_is_said_to_be_missing(tmp_path: Path) -> None:
    assert "no warehouse here" in refusal(lambda: Store.open(tmp_path / "none")).message
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("other", [0, 1, 2, 7])
def test_another_format_is_refused_with_both_numbers(tmp_path: Path, other: int) -> None:
    store = Store.open_or_create(tmp_path)
    path = store.folder / "_tw" / "warehouse.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": other, "surprise": [1]}))
    for action in (Store.open, Store.open_or_create):
        error = refusal(lambda action=action: action(tmp_path))
        assert isinstance(error, SchemaVersionError)
        assert error.message == f"{tmp_path}: warehouse of format {other}; this release reads format 3"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "x"}', '{"format": 3}'])
def test_a_damaged_mark_is_reported(tmp_path: Path, text: str) -> None:
    store = Store.open_or_create(tmp_path)
    (store.folder / "_tw" / "warehouse.json").write_text(text)
    assert "warehouse.json: damaged" in refusal(lambda: Store.open(tmp_path)).message


def test_a_refused_link_is_reported_at_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No file system without hard links can be mounted by just any tester.
    def refuse(*_: object) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(os, "link", refuse)
    error = refusal(lambda: Store.open_or_create(tmp_path / "warehouse"))
    assert "refuses hard links" in error.message
    assert not (tmp_path / "warehouse" / "_tw" / "warehouse.json").exists()


USE = """
import sys
from pathlib import Path
from tracewarehouse.storage.model import Changes, RankSource
from tracewarehouse.storage.store import Store
store = Store.open_or_create(Path(sys.argv[1]))
source = RankSource(
    "run", 0, "u", "a", "m", "d", "", "kineto", 1, {}, 1, "intact", "2026", (), {"name": "é", "n": 2**60}
)
store.publish("run", Changes(sources=(source,)))
assert Store.open(store.folder).newest("run").sources == (source,)
print(sorted({"pandas", "duckdb", "polars", "pyarrow.dataset"} & set(sys.modules)))
"""


def test_publishing_and_reading_a_version_imports_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
