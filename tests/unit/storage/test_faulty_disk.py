"""A disk that fails or loses power in the middle of a command publishes all or nothing; a retry completes.

The command is a real process whose changes below the warehouse pass through `faulty_disk.c`.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cli_runner
from conftest import ROOT
from ingesting import take, write
from tracewarehouse.formats.kineto import build
from tracewarehouse.warehouse import Warehouse

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs LD_PRELOAD and /proc"),
]
RELEASE = ROOT / "tests" / "data" / "releases" / "0.2.0" / "warehouse"
SQL = "SELECT run_id, rank, name, dur_ns FROM kernels ORDER BY ALL"
COMMANDS: dict[str, tuple[str, ...]] = {
    "ingest": ("ingest", "NEW", "--run", "new", "--jobs", "1"),
    "replace": ("ingest", "NEW", "--run", "a", "--replace", "--jobs", "1"),
    "label": ("label", "a", "k=v"),
    "remove": ("remove", "b"),
    "compact": ("compact",),
    "record": ("record", "--all", "--analysis", "step_summary"),
    "clean": ("clean", "--grace", "0s", "--keep-versions", "0s"),
    "upgrade": ("upgrade",),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled `faulty_disk.c`."""
    made = tmp_path_factory.mktemp("faulty") / "faulty_disk.so"
    compiler = build.system_compiler() or build.zig_compiler()
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = Path(__file__).with_name("faulty_disk.c")
    flags = ("-std=gnu11", "-O1", "-shared", "-fPIC", "-ldl")
    subprocess.run([*compiler, str(source), *flags, "-o", str(made)], check=True)
    return made


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `a` of two commits and two versions, run `b`, and the traces of another run; read-only."""
    folder = tmp_path_factory.mktemp("base")
    for run, ranks in (("a", [0]), ("a", [0, 1]), ("b", [0, 1])):
        take(folder / "wh", *write(folder / run, ranks, mark=run), run=run, jobs=1)
    write(folder / "new", range(2), mark="n")
    return folder


class Place:
    """Copies of a warehouse, and what a command makes of them when nothing fails."""

    def __init__(self, library: Path, base: Path, folder: Path, name: str) -> None:
        self.library, self.folder, self.made = library, folder, 0
        self.start = RELEASE if name == "upgrade" else base / "wh"
        self.command = [str(base / "new") if word == "NEW" else word for word in COMMANDS[name]]
        root, log = self.copy(), folder / "all.log"
        self.before = state(root)
        assert self.run(root, FAULTY_LOG=str(log)).code == 0
        self.after = state(root)
        self.changes = sum(line.startswith("C") for line in log.read_text().splitlines())
        assert self.changes > 8

    def copy(self) -> Path:
        self.made += 1
        return Path(shutil.copytree(self.start, self.folder / f"wh{self.made}"))

    def run(self, root: Path, **faults: object) -> cli_runner.CliResult:
        env = {name: str(value) for name, value in faults.items()}
        env |= {"LD_PRELOAD": str(self.library), "FAULTY_ROOT": f"{root}/"} if faults else {}
        return cli_runner.process(*self.command, "-w", root, env=env)

    def points(self, number: int, seed: int) -> list[int]:
        return sorted(random.Random(seed).sample(range(1, self.changes + 1), min(number, self.changes)))

    def check_repeat(self, root: Path, at: int) -> None:
        """The warehouse is as before or after the command, whole, and a repeat completes it."""
        found = state(root)
        assert found in (self.before, self.after), at
        if found is not None:
            assert Warehouse(root).verify() == [], at
        again = self.run(root)
        is_removed = self.command[0] == "remove" and found == self.after
        assert (again.code, "unknown run" in again.err) == (int(is_removed), is_removed), (at, again.err)
        assert state(root) == self.after, at
        assert Warehouse(root).verify() == [], at
        Warehouse(root).clean(0.0, keep_versions_s=0.0)
        assert state(root) == self.after and Warehouse(root).verify() == [], at
        held = {path for version in Warehouse(root).store.present() for path in version.paths}
        waits = Warehouse(root).store.pending_runs().values()
        held |= {file.path for each in waits for one in each for file in one.source.files}
        assert {path.relative_to(root).as_posix() for path in (root / "data").rglob("*.parquet")} == held, at
        assert list((root / "_tw" / "staging").iterdir()) == [], at


def state(root: Path) -> Any:
    """Runs with labels, rows, and recorded results; None for a warehouse of the old format."""
    if json.loads((root / "_tw" / "warehouse.json").read_bytes())["format"] == 2:
        return None
    wh = Warehouse(root)
    rows = wh.query(SQL)
    assert "left out" not in str(rows.notices), rows.notices
    recorded = sorted(str(one.run) for one in wh.store.recorded("step_summary", 1))
    labels = {row["run_id"]: row["labels"] for row in wh.runs().rows()}
    return labels, rows.rows(), recorded


@pytest.fixture(params=COMMANDS)
def place(request: pytest.FixtureRequest, library: Path, base: Path, tmp_path: Path) -> Place:
    return Place(library, base, tmp_path, request.param)


FAULTS: Sequence[tuple[int, bool]] = (
    (errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False), (errno.EROFS, True), (errno.EACCES, True),
)  # fmt: skip


@pytest.mark.parametrize(("number", "forever"), FAULTS, ids=lambda each: str(each))
def test_a_change_that_fails(place: Place, number: int, forever: bool) -> None:
    reported = 0
    for at in place.points(8, seed=number + forever):
        root = place.copy()
        faults = {"FAULTY_AT": at, "FAULTY_ERRNO": number} | ({"FAULTY_FOREVER": 1} if forever else {})
        done = place.run(root, **faults)
        reported += done.code != 0
        assert done.code in (0, 1, 4), (at, done.err)
        assert "internal error" not in done.err and "Traceback" not in done.err, (at, done.err)
        if done.code == 0:
            assert state(root) == place.after, at
        place.check_repeat(root, at)
        shutil.rmtree(root)
    assert reported or not forever


def lose_unsynced(log: Path, root: Path, chance: random.Random) -> int:
    """Empties what was written and not synced, and drops some names whose folder was not synced; how many."""
    written, named = set[str](), dict[str, str]()
    for line in log.read_text().splitlines():
        kind, inode, path = line.split(" ", 2)
        if kind == "W":
            written.add(inode)
        elif kind == "S":
            written.discard(inode)
        elif kind == "N":
            named[path] = inode
        elif kind == "D":
            named = {name: each for name, each in named.items() if str(Path(name).parent) != path}
    lost = 0
    for path in [path for path in root.rglob("*") if path.is_file()]:
        if str(path.stat().st_ino) in written:
            os.truncate(path, 0)
            lost += 1
        elif str(path) in named and chance.random() < 0.5:
            path.unlink()
            lost += 1
    for path in (root / "_tw" / "staging").rglob("*"):
        if path.is_dir() or path.stat().st_nlink == 1:  # not of what is published, which has two names
            os.utime(path, (0, 0))  # without its content, a lock counts as one of another machine for a while
    return lost


def test_a_power_failure(place: Place) -> None:
    """What was not synced is gone. Names go in any order, which no file system is as bad as to do."""
    chance = random.Random(7)
    for at in place.points(16, seed=7):
        root, log = place.copy(), place.folder / f"{at}.log"
        done = place.run(root, FAULTY_AT=at, FAULTY_LOG=log)
        assert done.code == -9, at
        lose_unsynced(log, root, chance)
        place.check_repeat(root, at)
        shutil.rmtree(root)
    root, log = place.copy(), place.folder / "end.log"
    assert place.run(root, FAULTY_LOG=log).code == 0
    lose_unsynced(log, root, chance)
    assert state(root) == place.after
    place.check_repeat(root, 0)
