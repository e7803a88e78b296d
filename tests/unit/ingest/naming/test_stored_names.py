"""Names of runs in a warehouse: stored content keeps its name, and a note says what named a new run."""

from __future__ import annotations

import shutil
from pathlib import Path

import tracewarehouse as tw
from ingesting import states, take, write
from tracewarehouse.storage.store import Store


def runs(root: Path) -> list[str]:
    return list(Store.open(root).runs())


def commits(root: Path) -> int:
    return len(list((root / "_tw" / "commits").rglob("*.json")))


def test_stored_content_keeps_its_name_whatever_a_rule_would_give(tmp_path: Path) -> None:
    root = tmp_path / "w"
    files = write(tmp_path / "job", ranks=(0, 1))
    take(root, *files, run="older-name")
    report = take(root, *files)
    assert states(report) == {"rank0.json": "same", "rank1.json": "same"}
    assert {(file.run, file.rank) for file in report.files} == {("older-name", 0), ("older-name", 1)}
    # One rank, and a copy of it in another folder, are content of the run as well.
    copy = tmp_path / "elsewhere" / "job_rank1.json"
    copy.parent.mkdir()
    shutil.copy(files[1], copy)
    assert [(file.state, file.run, file.rank) for file in take(root, copy).files] == [
        ("same", "older-name", 1)
    ]
    assert runs(root) == ["older-name"]
    assert commits(root) == 1  # nothing was built
    assert report.notes == ()


def test_a_requested_name_stores_the_content_once_more(tmp_path: Path) -> None:
    root = tmp_path / "w"
    files = write(tmp_path / "job")
    take(root, *files)
    assert states(take(root, *files, run="copy")) == {"rank0.json": "intact"}
    assert runs(root) == ["copy", "job"]
    assert [file.run for file in take(root, *files).files] == ["job"]


def test_a_run_with_other_content_beside_it_is_stored_completely(tmp_path: Path) -> None:
    root = tmp_path / "w"
    files = write(tmp_path / "job", ranks=(0, 1))
    take(root, files[0], run="probe")
    assert states(take(root, *files)) == {"rank0.json": "intact", "rank1.json": "intact"}
    assert Store.open(root).newest("job").ranks == (0, 1)  # type: ignore[union-attr]


def test_a_note_says_what_named_a_new_run(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "w")
    (trace,) = write(tmp_path / "job")
    assert wh.ingest(trace, jobs=1, min_age_s=0).notes == ()
    paths = [tmp_path / "more" / name for name in ("llama_rank0.json", "rank_1/rank1.json")]
    for at, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(write(tmp_path / "made", kernels=4 + at)[0], path)
    notes = [str(note) for note in wh.ingest(*paths, jobs=1, min_age_s=0).notes]
    assert notes == [
        "named after the file: llama; run=NAME gives another name",
        f"named after the folder {tmp_path / 'more'}: more; run=NAME gives another name",
    ]
