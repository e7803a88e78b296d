"""Clocks that differ by days, and a clock that jumps back: nothing is lost, hidden or deleted early."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cli_runner import TW, environment
from ingesting import write
from tracewarehouse.warehouse import Warehouse

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed"),
]


def start(clock: str, *words: str | Path) -> subprocess.Popen[str]:
    """A command by this clock; the times of files are those of the disk, as on a shared one."""
    command = ["faketime", "-f", clock, *TW, *map(str, words)]
    env = {**environment(), "NO_FAKE_STAT": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(clock: str, *words: str | Path) -> str:
    with start(clock, *words) as running:
        out, err = running.communicate()
        assert running.returncode == 0, (words, err)
    return out


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    write(tmp_path / "job", range(6))
    yield tmp_path / "wh"


def rows(root: Path, run: str = "job") -> dict[int, int]:
    found = Warehouse(root).select(run).query("SELECT rank, count(*) AS n FROM kernels GROUP BY ALL")
    return {row["rank"]: row["n"] for row in found.rows()}


def test_two_writers_two_days_behind_and_ahead(root: Path) -> None:
    """Each adds three ranks and labels at the same time, while a third one cleans by either clock."""
    job = sorted((root.parent / "job").iterdir())
    run("+0d", "ingest", job[0], "-w", root, "--min-age", "0s", "--jobs", "1")
    for number in range(3):
        with ExitStack() as started:
            both = [
                started.enter_context(
                    start(clock, "ingest", file, "-w", root, "--min-age", "0s", "--jobs", "1")
                )
                for clock, file in (("-2d", job[1 + number]), ("+2d", job[min(4 + number, 5)]))
            ]
            both.append(started.enter_context(start("-2d", "label", "job", f"old{number}=1", "-w", root)))
            both.append(started.enter_context(start("+2d", "label", "job", f"new{number}=1", "-w", root)))
            both.append(started.enter_context(start(("+2d", "-2d")[number % 2], "clean", "-w", root)))
            for each in both:
                _, err = each.communicate()
                assert each.returncode == 0, err
        assert Warehouse(root).verify() == []
    assert rows(root) == dict.fromkeys(range(6), 3)
    (labels,) = [row["labels"] for row in Warehouse(root).runs().rows()]
    assert {f"{age}{number}" for age in ("old", "new") for number in range(3)} <= labels.keys()


@pytest.mark.parametrize("clocks", [("+0d", "-2d", "-9d", "+0d"), ("+9d", "+0d", "-2d", "+9d")])
def test_a_clock_that_jumps_back(root: Path, clocks: tuple[str, ...]) -> None:
    """The last call wins whatever its time is, and what it replaced stays for as long as by one clock."""
    store = ["-w", root]
    first, second, third, last = clocks
    run(first, "ingest", root.parent / "job", *store, "--min-age", "0s", "--jobs", "1")
    run(second, "label", "job", "k=2", *store)
    run(third, "label", "job", "k=3", *store)
    (row,) = Warehouse(root).runs().rows()
    assert (row["version"], row["labels"]["k"]) == (3, "3")
    run(third, "record", "--all", "--analysis", "step_summary", *store)
    run(third, "remove", "job", *store)
    for clock in (last, third):
        run(clock, "clean", *store)
        assert rows(root, "job@v3") == dict.fromkeys(range(6), 3), clock
    run(second, "ingest", root.parent / "job", *store, "--min-age", "0s", "--jobs", "1")
    run(last, "compact", *store)
    assert rows(root) == dict.fromkeys(range(6), 3) and Warehouse(root).verify() == []
    run(last, "clean", "--grace", "0s", "--keep-versions", "0s", *store)
    assert rows(root) == dict.fromkeys(range(6), 3) and Warehouse(root).verify() == []
