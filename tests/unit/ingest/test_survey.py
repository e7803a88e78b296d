"""Discovery of trace files: candidates, skipped files and refused paths."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracewarehouse.ingest.survey import Discovered, discover


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def names(found: Discovered, root: Path) -> list[str]:
    return [str(file.path.relative_to(root)) for file in found[0]]


def reasons(found: Discovered, state: str) -> dict[str, str | None]:
    """Name → reason of the other files."""
    return {outcome.path.name: outcome.reason for outcome in found[1] if outcome.state == state}


def test_a_folder_is_sorted_and_without_other_files(tmp_path: Path) -> None:
    make(tmp_path, "b/rank1.json.gz", "b/rank0.json", "a.json", "notes.md", "model.pt", "x.tar.gz")
    make(tmp_path, ".hidden.json", ".git/x.json", "half.json.tmp", "half.json.part", "old.json~")
    assert names(discover([tmp_path]), tmp_path) == ["a.json", "b/rank0.json", "b/rank1.json.gz"]


def test_other_formats_are_skipped_in_a_folder_and_candidates_when_named(tmp_path: Path) -> None:
    make(tmp_path, "a.nsys-rep", "kern_sum.csv", "nsys.sqlite", "snap.PICKLE", "timeline.raw.json.gz")
    make(tmp_path, "nccl_trace_rank_3")
    found = discover([tmp_path, tmp_path])
    assert names(found, tmp_path) == [
        "nccl_trace_rank_3", "nsys.sqlite", "snap.PICKLE", "timeline.raw.json.gz",
    ]  # fmt: skip
    assert reasons(found, "skipped") == {
        "a.nsys-rep": "is an Nsight Systems report: name the file itself, or run nsys export --type sqlite",
        "kern_sum.csv": "is a CSV file: name it if it is from ncu --csv or of a registered format",
    }
    assert len(discover([tmp_path / "a.nsys-rep"])[0]) == 1


def test_a_named_file_is_kept_whatever_its_name(tmp_path: Path) -> None:
    make(tmp_path, "odd.name", ".hidden.json")
    found = discover([tmp_path / "odd.name", tmp_path / ".hidden.json"])
    assert [one.named for one in found[0]] == [True, True]


def test_a_file_given_twice_is_one_candidate(tmp_path: Path) -> None:
    make(tmp_path, "rank0.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "rank0.json")
    found = discover([tmp_path, tmp_path / "rank0.json", tmp_path])
    assert len(found[0]) == 1
    assert found[0][0].named


def test_a_link_to_a_parent_folder_ends(tmp_path: Path) -> None:
    make(tmp_path, "a/rank0.json")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    assert names(discover([tmp_path]), tmp_path) == ["a/rank0.json"]


def test_a_link_to_a_folder_above_is_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "a/rank0.json", "other/rank1.json", "elsewhere/rank2.json")
    for name, target in ("parent", tmp_path), ("root", Path("/")), ("linked", tmp_path / "elsewhere"):
        (tmp_path / "a" / name).symlink_to(target)
    assert names(discover([tmp_path / "a"]), tmp_path) == ["a/linked/rank2.json", "a/rank0.json"]


def test_a_warehouse_is_skipped(tmp_path: Path) -> None:
    make(tmp_path, "wh/_tw/warehouse.json", "wh/inbox/job/rank0.json", "rank0.json")
    assert names(discover([tmp_path]), tmp_path) == ["rank0.json"]
    (refused,) = discover([tmp_path / "wh"])[1]
    assert "inbox=True" in str(refused.hint)


def test_invalid_paths_are_listed_and_do_not_affect_others(tmp_path: Path) -> None:
    make(tmp_path, "good/rank0.json", "empty/README.md")
    os.mkfifo(tmp_path / "pipe")
    found = discover([tmp_path / n for n in ("missing", "empty", "pipe", "good")])
    assert [one.path.name for one in found[0]] == ["rank0.json"]
    assert reasons(found, "refused") == {
        "missing": "no such file or folder",
        "empty": "no traces found in this folder",
        "pipe": "neither a file nor a folder",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_reported(tmp_path: Path) -> None:
    make(tmp_path, "locked/rank0.json", "rank0.json")
    (tmp_path / "locked").chmod(0)
    found = discover([tmp_path])
    (tmp_path / "locked").chmod(0o700)
    assert len(found[0]) == 1
    assert str(reasons(found, "refused")["locked"]).startswith("cannot be read")


def test_a_link_to_itself_is_reported(tmp_path: Path) -> None:
    make(tmp_path, "rank0.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    found = discover([tmp_path])
    assert [one.path.name for one in found[0]] == ["rank0.json"]
    assert list(reasons(found, "refused")) == ["loop.json"]
