"""The stored warehouse of each earlier release gives the same answers after `tw upgrade`.

`data/make_release_warehouse.py` adds one per release. A released contract never changes, so answers are
compared by name and version; a version that is retired is not compared. Contracts started again at version 1
after 0.2.0: what gives other answers since is named here, each with the reason.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import cli_runner
import tracewarehouse as tw
from conftest import ROOT, deep
from ingesting import write
from tracewarehouse.errors import SchemaVersionError
from tracewarehouse.storage.objects import LocalObjects

sys.path.insert(0, str(ROOT / "tests" / "data"))
import make_release_warehouse as releases
from release_traces import SECRET

FOLDER = ROOT / "tests" / "data" / "releases"
MADE_NOW = pytest.param(None, id="now", marks=pytest.mark.deep)
MOST_BYTES = 3 << 20
CHANGED = {
    "kernel_summary.sum_ns[kind=communication]": "histories of sums are per recorded step",
    "collective_rules@1": "all-to-all of expert parallelism",
    "gpu_metric_rules@1": "names of CUPTI",
    "phase_rules@1": "annotations that vLLM writes by default",
    "device_specs@1": "more devices, types and links",
    "kernel_limits@1": "latency, compute or memory by the rules of Nsight Compute",
    **dict.fromkeys(("mfu@1", "op_work_summary@1", "roofline@1"), "more devices; reasons have names"),
    "host_copies@1": "ranks with GPU activities are skipped by name",
    "host_data_loading@1": "ranks with GPU activities are skipped by name",
    "host_operators@1": "ranks with GPU activities are skipped by name",
    **dict.fromkeys(
        ("gpu_timeline@1", "idle_breakdown@1", "idle_intervals@1", "step_account@1", "window_account@1"),
        "gaps have parts",
    ),
    **dict.fromkeys(
        ("critical_edges@1", "critical_nodes@1", "critical_path@1", "critical_path_breakdown@1",
         "critical_path_by_op@1", "mfu_run@1", "step_summary@1", "steps@1"),
        "all steps that the profiler recorded are complete",
    ),
    **dict.fromkeys(
        ("allocator_calls@1", "blocking_copies@1", "blocking_syncs@1", "exposed_comm@1", "host_bound@1",
         "input_bound@1", "launch_bound@1", "low_gpu_use@1", "low_roofline_hot_ops@1", "memory_pressure@1",
         "misaligned_gemm@1", "pageable_copies@1", "slow_collectives@1", "slow_network@1", "slow_rank@1",
         "tensor_cores@1"),
        "complete steps, parts of gaps, and limits of the recording",
    ),
}  # fmt: skip
# Sums of floats depend on the order in which threads add.
FLOATS_WITHIN = 1e-12


@pytest.fixture(
    scope="module", params=[*sorted(FOLDER.glob("*")), MADE_NOW], ids=lambda path: path and path.name
)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release; without any, of this one."""
    if request.param is None:
        folder = tmp_path_factory.mktemp("release") / tw.__version__
        releases.make(folder)
        return folder
    assert isinstance(request.param, Path)
    return request.param


@pytest.fixture(scope="module")
def wh(release: Path, tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A copy of its warehouse, upgraded."""
    wh = tw.open(shutil.copytree(release / "warehouse", tmp_path_factory.mktemp("copy") / "warehouse"))
    assert wh.upgrade().failed == {}
    # A conversion does not keep derived tables.
    wh.derive("critical_path", "good")
    return wh


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Each place at which stored answers differ from those of now; a later release may have more."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            yield from differences(value, new.get(key), f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{place}[{at}]")
    elif old != new and not _close(old, new):
        yield f"{place}: was {old!r}, is {new!r}"


def _close(old: object, new: object) -> bool:
    both = isinstance(old, float) and isinstance(new, float)
    return both and (math.isclose(old, new, rel_tol=FLOATS_WITHIN) or (math.isnan(old) and math.isnan(new)))  # type: ignore[arg-type]


def renamed(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """An answer of 0.2.0 with the names of today, as in the guide."""
    names = {"abstained": "skipped", "blamed_ns": "attributed_ns", "blamed_share": "attributed_share"}
    if name.startswith("kernel_modules@"):
        names["how"] = "attribution_method"
    if skipped := answer.get("abstained"):
        reasons = {"blame is not derived": "wait_attribution is not derived"}
        answer = {**answer, "abstained": [[run, rank, reasons.get(why, why)] for run, rank, why in skipped]}
    rows = answer.get("rows")
    if isinstance(rows, dict):
        answer = {**answer, "rows": {names.get(key, key): values for key, values in rows.items()}}
    return {names.get(key, key): value for key, value in answer.items()}


def compared(release: Path, wh: tw.Warehouse, runs: Sequence[str] = ()) -> list[str]:
    """Differences in the contracts that still exist, for some runs or everything."""
    known = {str(ref) for ref in wh.catalog.contracts}
    kept = {
        file: {name: rows for name, rows in each.items() if "@" not in name or name in known}
        for file, each in releases.stored(release).items()
        if not runs or file in runs
    }
    if release.name == "0.2.0":
        kept = {
            file: {name: renamed(rows, name) for name, rows in each.items() if name not in CHANGED}
            for file, each in kept.items()
        }
    new = json.loads(json.dumps(releases.answers(wh, runs), default=str))
    for answer in (answer for side in (kept, new) for each in side.values() for answer in each.values()):
        if "notices" in answer:
            answer["notices"] = [each for each in answer["notices"] if not each.startswith("recording of ")]
    return list(differences(kept, new))


def test_answers_of_a_damaged_run_are_the_same(release: Path, wh: tw.Warehouse) -> None:
    found = compared(release, wh, ["odd"])
    assert not found, "\n".join([f"{len(found)} differences", *found[:20]])


@pytest.mark.deep
def test_answers_are_the_same_after_an_upgrade(release: Path, wh: tw.Warehouse) -> None:
    assert set(releases.stored(release)) == {"good", "slow", "odd", "timeline", "hang", "history"}
    # Deriving published a version of `good`.
    found = [each for each in compared(release, tw.open(wh.root)) if ".version[0]: was 2, is 3" not in each]
    # What depends on kinds of kernels has the rules of users in its definition.
    found = [each for each in found if ".definition[" not in each]
    assert not found, "\n".join([f"{len(found)} differences after the upgrade", *found[:20]])
    assert wh.upgrade().lines == ()


def test_a_warehouse_of_another_format_is_refused_until_it_is_converted(tmp_path: Path) -> None:
    root = Path(shutil.copytree(FOLDER / "0.2.0" / "warehouse", tmp_path / "warehouse"))
    with pytest.raises(SchemaVersionError, match="of format 2; this release reads format 3") as caught:
        tw.open(root).runs()
    assert "wh.upgrade()" in (caught.value.hint or "")
    before = sorted(path for path in root.rglob("*") if path.is_file())
    wh = tw.open(root)
    lines = wh.upgrade().lines
    assert "good@v2 converted: 2 ranks" in lines and "waits: 1 waiting ranks converted" in lines
    assert wh.verify() == []
    assert {row["run_id"]: row["labels"] for row in wh.runs().rows()}["good"] == {"branch": "main"}
    assert [fields["why"] for fields in wh.store.acknowledged()] == ["a slower rank, on purpose"]
    results = {recorded.run for recorded in wh.store.recorded("step_summary", 1)}
    assert results == {"good", "slow", "gone"}
    left = {path.relative_to(root).parts[1] for path in (root / "_tw").rglob("*") if path.is_file()}
    assert left == {"warehouse.json", "commits", "versions", "index"}
    assert not {path for path in before if path.is_file()} & set((root / "data").rglob("*"))


@pytest.mark.parametrize("step", [2, *deep(1, 4, 8)])
def test_a_killed_conversion_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    root = Path(shutil.copytree(FOLDER / "0.2.0" / "warehouse", tmp_path / "warehouse"))
    put, delete, done = LocalObjects.put_if_absent, LocalObjects.delete, []

    def count(act: Any) -> Any:
        def counted(*args: Any) -> Any:
            done.append(act)
            if len(done) == step:
                raise KeyboardInterrupt
            return act(*args)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(LocalObjects, "put_if_absent", count(put))
        patch.setattr(LocalObjects, "delete", count(delete))
        with pytest.raises(KeyboardInterrupt):
            tw.open(root).upgrade()
    wh = tw.open(root)
    wh.upgrade()
    assert wh.verify() == [] and not [path for path in (root / "_tw/runs").rglob("*") if path.is_file()]
    assert [row["run_id"] for row in wh.runs().rows() if row["state"] != "pending"] == [
        "odd", "timeline", "good", "slow", "hang",
    ]  # fmt: skip
    assert list(wh.store.pending_runs()) == ["waits"]


@pytest.mark.deep
def test_an_upgrade_is_killed_at_random_moments(tmp_path: Path) -> None:
    """Readers get an answer or the hint to upgrade, never a part; a repeat completes the conversion."""
    root = tmp_path / "warehouse"
    chance, killed = random.Random(5), 0
    command = [*cli_runner.TW, "upgrade", "-w", str(root)]
    shutil.copytree(FOLDER / "0.2.0" / "warehouse", root)
    started = time.monotonic()
    assert cli_runner.process("upgrade", "-w", root).code == 0
    lasts_s, wanted = time.monotonic() - started, seen_of_all(root)
    assert wanted is not None and len(wanted) == 5
    for attempt in range(16):
        shutil.rmtree(root)
        shutil.copytree(FOLDER / "0.2.0" / "warehouse", root)
        with subprocess.Popen(
            command,
            env=cli_runner.environment(),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as running:
            with suppress(subprocess.TimeoutExpired):
                running.wait(chance.uniform(0.1, 1.0) * lasts_s)
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
        killed += running.returncode == -signal.SIGKILL
        assert seen_of_all(root) in (None, wanted), attempt
        done = cli_runner.process("upgrade", "-w", root)
        assert (done.code, seen_of_all(root)) == (0, wanted), (attempt, done.err)
        assert tw.open(root).verify() == [] and list(tw.open(root).store.pending_runs()) == ["waits"]
    assert killed >= 6


def seen_of_all(root: Path) -> dict[str, Any] | None:
    """Run → labels and sums of its kernels; None if the warehouse must be upgraded first."""
    try:
        wh = tw.open(root)
        labels = {row["run_id"]: row["labels"] for row in wh.runs().rows() if row["state"] != "pending"}
        found = wh.query("SELECT run_id, count(*) AS n, sum(dur_ns) AS ns FROM kernels GROUP BY ALL")
    except SchemaVersionError:
        return None
    assert wh.verify() == [] and "left out" not in str(found.notices)
    sums = {row["run_id"]: (row["n"], row["ns"]) for row in found.rows()}
    return {run: (stated, sums.get(run)) for run, stated in labels.items()}


def test_it_is_intact_and_small(release: Path, wh: tw.Warehouse) -> None:
    assert wh.verify() == [] and list(wh.store.pending_runs()) == ["waits"]
    assert [version.run for version in wh.store.kept()] == ["gone"]
    assert sum(path.stat().st_size for path in release.rglob("*") if path.is_file()) < MOST_BYTES


def test_no_injected_secret_is_stored(release: Path) -> None:
    # The pages of Parquet files are compressed: the answers have the rows of all tables.
    assert SECRET not in json.dumps(releases.stored(release))
    files = [path for path in (release / "warehouse").rglob("*") if path.is_file()]
    assert files and not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_the_pending_run_is_published_with_its_other_rank(release: Path, tmp_path: Path) -> None:
    wh = tw.open(shutil.copytree(release / "warehouse", tmp_path / "warehouse"))
    wh.upgrade()
    wh.ingest(*write(tmp_path / "waits", [1]), run="waits", expect_ranks=2)
    (waited,) = wh.select("waits").selected()
    assert waited.ranks == (0, 1)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"a": [1, 2]}, {"a": [1, 2], "b": []}, 0),
        ({"a": [1, 2]}, {"a": [1, 3]}, 1),
        ({"a": [1]}, {"a": [1, 2]}, 1),
        ({"a": []}, {}, 1),
        ({"a": [1.0]}, {"a": [1.0 + 1e-13]}, 0),
        ({"a": [1.0]}, {"a": [1.0 + 1e-11]}, 1),
        ({"a": [None]}, {"a": [0]}, 1),
    ],
)
def test_a_difference_is_found(old: Any, new: Any, found: int) -> None:
    assert len(list(differences(old, new))) == found
