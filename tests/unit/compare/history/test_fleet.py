"""Analyses over runs have the recorded results of the runs as they are now, whatever happened to them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sketch
import tracewarehouse
from cli_runner import TW, environment, tw
from recorded_runs import recorded_runs
from tracewarehouse import Warehouse, findings
from tracewarehouse.compare.history.record import pack
from tracewarehouse.contracts.contract import FINDINGS
from tracewarehouse.errors import UnknownName
from tracewarehouse.runs.rows import catalog_row
from tracewarehouse.storage import layout
from tracewarehouse.storage.delta import DeltaLog

DAY_NS = 86_400 * 10**9
KERNELS = "kernel_summary"
Times = dict[str, list[tuple[str, int]]]  # run → name and duration of each kernel


def draw(folder: Path, run: str, kernels: Iterable[tuple[str, int]], day: int) -> Path:
    """A trace of one rank with these kernels, one after the other."""
    lines = [f'{run} 0 header {{"baseTimeNanoseconds": {day * DAY_NS}}}']
    start = 0
    for name, dur_ns in kernels:
        lines.append(f"{run} 0 gpu s7 {name} {start} {dur_ns}")
        start += dur_ns
    (path,) = sketch.write("\n".join(lines), folder)
    return path


def recomputed(wh: Warehouse, kernels: Times) -> list[tuple[Any, ...]]:
    """The rows of `kernel_fleet` computed in Python from the kernels of each run."""
    found: dict[tuple[Any, ...], dict[str, list[int]]] = {}
    for row in wh.runs().rows():
        day = datetime.fromtimestamp(row["start_ns"] // 10**9, UTC).strftime("%Y-%m-%d")
        for name, dur_ns in kernels.get(row["run_id"], ()):
            group = (day, row["labels"].get("team"), row["labels"].get("model"))
            found.setdefault((*group, name), {}).setdefault(row["run_id"], []).append(dur_ns)
    rows = []
    for (*group, name), runs in found.items():
        whole = {
            run: sum(ns for _, ns in kernels[run])
            for *of, _ in found
            for run in found[(*of, _)]
            if of == group
        }
        share, worst = max((sum(times) / whole[run], run) for run, times in runs.items())
        sum_ns = sum(map(sum, runs.values()))
        count = sum(map(len, runs.values()))
        rows.append((*group, name, len(runs), count, sum_ns, sum_ns / sum(whole.values()), worst, share))
    return sorted(rows, key=repr)


def answered(wh: Warehouse) -> list[tuple[Any, ...]]:
    rows = wh.analyze("kernel_fleet", label_key="team").rows()
    return sorted((tuple(value for name, value in row.items() if name != "gpu") for row in rows), key=repr)


def copied(wh: Warehouse, name: str = "kernel_fleet") -> dict[str, list[dict[str, Any]]]:
    """The rows of the Delta table of an analysis over runs, by file."""
    folder = f"{layout.DATA}/{name}"
    held = DeltaLog(wh.store.objects, folder).read().files.values()
    return {path: pq.read_table(wh.root / folder / path).to_pylist() for files in held for path in files}


def assert_copied(wh: Warehouse) -> None:
    for name in ("kernel_fleet", "finding_fleet"):
        rows = [row for rows in copied(wh, name).values() for row in rows]
        assert sorted(rows, key=repr) == sorted(wh.analyze(name).rows(), key=repr)


KILLED = """
import os, signal, sys
from tracewarehouse.storage.objects import LocalObjects
left, adopt = [int(sys.argv.pop(1))], LocalObjects.adopt

def killed(self, keys):
    left[0] -= 1
    if left[0] == 0:
        adopt(self, dict(list(keys.items())[:1]))
        os.kill(os.getpid(), signal.SIGKILL)
    return adopt(self, keys)

LocalObjects.adopt = killed
from tracewarehouse.cli import main
main()
"""


class Changes:
    """A warehouse to which things happen, and what its recorded results are to say."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.wh = tracewarehouse.open(folder / "warehouse")
        self.stored: Times = {}
        self.recorded: Times = {}

    def some(self) -> str:
        return self.random.choice(sorted(self.stored))

    def ingest(self, run: str) -> None:
        names = self.random.choices(["gemm", "softmax", "copy"], k=4)
        kernels = [(name, self.random.randrange(1, 1000)) for name in names]
        path = draw(self.folder / f"t{self.random.random()}", run, kernels, 20_000 + self.random.randrange(2))
        self.wh.ingest(path, run=run, replace=True)
        self.stored[run] = kernels
        self.recorded.pop(run, None)

    def new(self) -> None:
        self.ingest(f"run{self.random.randrange(100)}")

    def replace(self) -> None:
        self.ingest(self.some())

    def remove(self) -> None:
        run = self.some()
        if len(self.stored) > 1:
            self.wh.remove(run, keep_results=self.random.random() < 0.5)
            del self.stored[run]
            self.recorded.pop(run, None)

    def relabel(self) -> None:
        self.wh.label(self.some(), {"team": self.random.choice("ab"), "model": self.random.choice("xy")})

    def expire(self) -> None:
        policy = self.folder / "policy.toml"
        policy.write_text('[[rule]]\ntables = ["events"]\nolder_than = "0d"\n')
        self.wh.expire(policy)

    def clean(self) -> None:
        self.wh.clean(-1, keep_versions_s=-1)

    def record(self) -> None:
        self.wh.record(analyses=[KERNELS])
        self.recorded = dict(self.stored)
        assert_copied(self.wh)

    def kill(self) -> None:
        """A killed call stored the first result, or nothing."""
        at = str(self.random.randrange(1, 3))
        given = ["-c", KILLED, at, "record", "--all", "--analysis", KERNELS, "-w", str(self.wh.root)]
        done = subprocess.run([sys.executable, *given], env=environment(), capture_output=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        self.record()


STEPS = ("new", "replace", "remove", "relabel", "expire", "clean", "record", "record")


def check(folder: Path, seed: int, steps: Iterable[str]) -> None:
    changes = Changes(folder, seed)
    for run in ("one", "two", "three"):
        changes.ingest(run)
    changes.wh.export_delta()
    changes.record()
    for step in steps:
        getattr(changes, step)()
        assert answered(changes.wh) == recomputed(changes.wh, changes.recorded), step
    assert changes.wh.verify() == []


def test_rows_are_those_of_a_full_recomputation(tmp_path: Path) -> None:
    check(tmp_path, 1, ("replace", "relabel", "remove"))


def test_a_record_writes_the_copy_of_its_day(tmp_path: Path) -> None:
    wh = tracewarehouse.open(tmp_path / "warehouse")
    for day, run in enumerate("abcd"):
        wh.ingest(draw(tmp_path / run, run, [("gemm", 10 + day)], 20_000 + day // 2), run=run)
    wh.export_delta()
    analyses = [KERNELS, FINDINGS]
    wh.record(["a", "c"], analyses=analyses)
    before = copied(wh)
    wh.record("d", analyses=analyses)
    after = copied(wh)
    assert [len(before), len(after), len(before.keys() & after.keys())] == [2, 2, 1]
    wh.record("d", analyses=analyses)
    assert copied(wh) == after
    (damaged,) = (wh.root / "results" / f"{KERNELS}@1" / "a").rglob("*[0-9a-f].parquet")
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-9])
    record = [*TW, "record", "--analysis", KERNELS, "-w", str(wh.root)]  # where no file is known as intact
    subprocess.run([*record, "b"], env=environment(), check=True)
    assert sorted(row["runs"] for rows in copied(wh).values() for row in rows) == [1, 2]
    assert {row["worst_run"] for rows in copied(wh).values() for row in rows} == {"b", "d"}
    damaged.write_bytes(data)
    subprocess.run([*record, "d"], env=environment(), check=True)
    assert_copied(wh)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(12))
def test_rows_are_those_of_a_full_recomputation_after_any_changes(tmp_path: Path, seed: int) -> None:
    check(tmp_path, seed, (*random.Random(seed).choices(STEPS, k=20), "kill"))


def test_the_answer_says_what_is_not_recorded(tmp_path: Path) -> None:
    wh = tracewarehouse.open(tmp_path / "warehouse")
    for run in ("one", "two"):
        wh.ingest(draw(tmp_path / run, run, [("gemm", 10)], 0), run=run)
    assert wh.kernel_fleet().rows() == []
    wh.record("one", analyses=[KERNELS, FINDINGS])
    found = wh.kernel_fleet()  # of the same process: no answer is kept
    assert [(row["name"], row["runs"]) for row in found.rows()] == [("gemm", 1)]
    (notice,) = found.notices
    assert (
        notice == f'left out 1 of 2 runs, of which {KERNELS} is not recorded: wh.record(analyses="{KERNELS}")'
    )
    assert len(wh.select("two").kernel_fleet()) == 0
    queried = tw("query", "SELECT name, sum_ns FROM kernel_fleet", "-w", wh.root)
    assert (queried.out, f"tw record --all --analysis {KERNELS}" in queried.err) == (
        "name,sum_ns\ngemm,10\n",
        True,
    )
    assert tw("query", "SHOW TABLES", "-w", wh.root).err == ""
    rows = wh.query(f"SELECT run_id, sum(sum_ns)::BIGINT AS ns FROM recorded_{KERNELS} GROUP BY ALL").rows()
    assert rows == [{"run_id": "one", "ns": 10}]
    with pytest.raises(UnknownName):
        wh.record(analyses=["kernels"])


def check_findings(wh: Warehouse) -> set[str]:
    """The rules in `finding_fleet`, after a comparison of what was recorded with what `check` finds."""
    assert wh.record(analyses=["low_gpu_use", FINDINGS]).analyses[-1] == "recorded_findings@1"
    recorded = wh.query("SELECT * FROM recorded_findings").table
    found = wh.check().table.select(recorded.column_names)
    order = [(name, "ascending") for name in ("run_id", "rank", "rule", "subject", "severity")]
    assert recorded.sort_by(order).to_pylist() == found.sort_by(order).to_pylist()
    return {row["name"] for row in wh.finding_fleet().rows()}


def test_recorded_findings_are_those_of_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = findings.rules
    monkeypatch.setattr(findings, "rules", lambda _: [one for one in every(_) if one.name == "low_gpu_use"])
    wh = tracewarehouse.open(tmp_path / "warehouse")
    idle = """
        one 0 gpu s7 k 0 100
        one 0 gpu s7 k 900 100
        two 0 gpu s7 k 0 1000
    """
    for path in sketch.write(idle, tmp_path / "traces"):
        wh.ingest(path, run=path.parent.name)
    assert "costs" not in {section.key for section in wh.report_runs().sections}
    assert check_findings(wh) == {"low_gpu_use"}
    (costs,) = (section for section in wh.report_runs().sections if section.key == "costs")
    assert [table.name for table in costs.tables] == ["finding_fleet"]
    assert "left out 2 of 2 runs" in costs.statements[0]


@pytest.mark.deep
def test_recorded_findings_of_all_rules_are_those_of_check(tmp_path: Path) -> None:
    wh = tracewarehouse.open(tmp_path / "warehouse")
    wh.ingest(Path(__file__).parents[3] / "data" / "first-steps", run="one")
    wh.derive("wait_attribution", "one")
    assert len(check_findings(wh)) > 3
    wh.derive("graphs", "one")
    wh.derive("wait_attribution", "one")
    assert len(wh.finding_fleet()) > 3, "of before the tables were derived"


def test_damaged_results_are_left_out(tmp_path: Path) -> None:
    wh = tracewarehouse.open(tmp_path / "warehouse")
    for run in ("one", "two"):
        wh.ingest(draw(tmp_path / run, run, [("gemm", 10)], 0), run=run)
    wh.record(analyses=[KERNELS])
    (path,) = (tmp_path / "warehouse" / "results" / f"{KERNELS}@1" / "one").rglob("*[0-9a-f].parquet")
    path.write_bytes(path.read_bytes()[:-9])
    fresh = tracewarehouse.open(wh.root)
    assert [row["runs"] for row in fresh.kernel_fleet().rows()] == [1]
    assert "left out 1 of 2 runs" in fresh.kernel_fleet().notices[0]
    fresh.repair()
    assert [row["runs"] for row in tracewarehouse.open(wh.root).kernel_fleet().rows()] == [2]


# The memory of a process counts from its fork: it is forked from a small one.
USED = """
import os, subprocess, sys
started = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(started.pid, 0)
assert status == 0, sys.argv
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def used(*command: str | Path) -> tuple[float, float]:
    """CPU seconds and MB of memory of a process."""
    given = [sys.executable, "-c", USED, *map(str, command)]
    done = subprocess.run(given, env=environment(), capture_output=True, text=True, check=True)
    seconds, size = map(float, done.stdout.split())
    return seconds, size


@pytest.mark.deep
def test_five_thousand_runs(tmp_path: Path) -> None:
    """The most CPU time is in units of an import of the libraries, which machines need more or less of."""
    rng, runs = random.Random(1), 5_000
    labels = {at: {"team": "ab"[at % 2], "commit": f"{at:07x}"} for at in range(runs)}
    wh = recorded_runs(tmp_path / "warehouse", [10**7 + rng.randrange(10**5) for _ in range(runs)], labels)
    before = wh.history("step_time").rows()
    pack(wh.store, wh.catalog.get("step_summary", kind="analysis"), runs)
    wh.store.list_runs(catalog_row)
    fresh = tracewarehouse.open(wh.root)
    assert fresh.history("step_time").rows() == before and len(before) == runs
    unit = min(used(sys.executable, "-c", "import duckdb, pyarrow")[0] for _ in range(3))
    at = ("-w", wh.root)
    commands: dict[tuple[str, ...], float] = {
        ("runs",): 3.5,
        ("info", "@latest"): 3.5,
        ("info", "label:commit=0000005"): 3.5,
        ("history", "step_time"): 4,
    }
    for command, most in commands.items():
        times, sizes = zip(*(used(*TW, *command, *at) for _ in range(3)), strict=True)
        assert min(times) <= most * unit and max(sizes) <= 300, (command, times, unit, sizes)
