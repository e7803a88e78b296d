"""Stores a small warehouse and its answers as this release writes them, for the upgrade tests of later ones.

    python tests/data/make_release_warehouse.py [FOLDER]     # default: tests/data/releases/VERSION

Run it once per release, after `tw dev release` (CONTRIBUTING.md). The folder is never made again: a later
release opens the stored files. `test_release_warehouses.py` compares the answers by version of each contract.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
sys.path.insert(0, str(Path(__file__).parent.parent / "system"))

from release_traces import write_traces
from test_upgrading import names

import tracewarehouse as tw
import warehouse_answers
from warehouse_answers import Answer, answer

HERE = Path(__file__).resolve().parent
RECORDED = ("step_summary", "kernel_summary")
METRICS = ("step_time", "kernel_summary.sum_ns[kind=communication]")


def fill(wh: tw.Warehouse, traces: Path) -> None:
    """Ingest, derive, record, label, remove: each leaves another kind of object."""
    main = {"branch": "main"}
    wh.ingest(HERE / "first-steps" / "rank3.json.gz", run="gone", labels=main)
    wh.record("gone", analyses=RECORDED)
    wh.remove("gone", keep_results=True)
    wh.clean(grace_s=0)
    wh.ingest(traces / "good", labels=main, jobs=1)
    wh.ingest(traces / "slow", labels=main, jobs=1)
    wh.ingest(traces / "odd", min_age_s=0, jobs=1)
    wh.ingest(traces / "memory" / "memory.raw.json.gz", run="timeline")
    wh.ingest(*sorted((HERE / "flight-recorder" / "skipped").glob("*.json")), run="hang", jobs=1)
    wh.ingest(traces / "waits", expect_ranks=2)
    wh.derive("critical_path", "good")
    wh.record(["good", "slow"], analyses=RECORDED)
    wh.acknowledge("step_time", "slow", "a slower rank, on purpose")


def answers(wh: tw.Warehouse, runs: Sequence[str] = ()) -> dict[str, Answer]:
    """Run → each stored table and each analysis by `NAME@VERSION`; without `runs`, all runs and histories."""
    found: dict[str, Answer] = {}
    if not runs:
        found["history"] = {name: answer(lambda n=name: wh.history(n).result) for name in METRICS}  # type: ignore[misc]
    for run in runs or [each.run for each in wh.selected()]:
        tables = {
            str(table.ref): {"rows": warehouse_answers.rows_of(wh, run, table)}
            for table in warehouse_answers.stored_tables(wh)
        }
        results = {
            str(each.ref): answer(lambda c=each, r=run: wh.select(r).analyze(c.name, c.version))  # type: ignore[misc]
            for each in wh.catalog.contracts.values()
            if each.kind == "analysis"
        }
        exported = {rank: {"sha256": digest} for rank, digest in warehouse_answers.exported(wh, run).items()}
        found[run] = tables | results | {f"exported rank {rank}": each for rank, each in exported.items()}
    return found


def stored(folder: Path) -> dict[str, Answer]:
    """The answers of a release, as `make` stored them."""
    files = sorted((folder / "answers").iterdir())
    return {path.name.partition(".")[0]: json.loads(gzip.decompress(path.read_bytes())) for path in files}


def make(folder: Path) -> None:
    """Writes `warehouse`, `answers` and `names.json` into a folder, which must not exist."""
    folder.mkdir(parents=True)
    (folder / "names.json").write_text(json.dumps(names(), separators=(",", ":")) + "\n")
    with tempfile.TemporaryDirectory() as work:
        write_traces(Path(work, "traces"))
        fill(tw.open(folder / "warehouse"), Path(work, "traces"))
        copy = Path(shutil.copytree(folder / "warehouse", Path(work, "copy")))
        found = answers(tw.open(copy))
    (folder / "answers").mkdir()
    for name, each in found.items():
        text = json.dumps(each, separators=(",", ":"), default=str)
        (folder / "answers" / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    place = Path(*sys.argv[1:2] or [HERE / "releases" / tw.__version__])
    if place.exists():
        sys.exit(f"{place} exists: the warehouse of a release is made once")
    make(place)
    print(place)
