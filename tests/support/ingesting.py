"""What the tests of ingest share: small traces, a view of what readers see, and ingests as real processes."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import cli_runner
import sketch
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck.engine import scratch
from tracewarehouse.ingest.naming import stem
from tracewarehouse.ingest.outcome import FileOutcome, IngestReport, Options
from tracewarehouse.ingest.pipeline import ingest
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse


def lines(rank: int, kernels: int = 3, mark: str = "k", at: int = 0) -> str:
    """A rank in the sketch language: a step, and kernels with their launches. RUN is replaced by the run."""
    text = [f"RUN {rank} step t1 1 {at} {kernels * 100 + 100}"]
    for n in range(kernels):
        start = at + n * 100
        text.append(f"RUN {rank} op t1 aten::{mark}{n} {start} 50")
        text.append(f"RUN {rank} call t1 cudaLaunchKernel {start + 10} 10 id={n + 1}")
        text.append(f"RUN {rank} gpu s7 {mark}{n} {start + 40} 30 id={n + 1}")
    return "\n".join(text) + "\n"


def write(
    folder: Path, ranks: Iterable[int] = (0,), kernels: int = 3, mark: str = "k", at: int = 0
) -> list[Path]:
    """Trace files `rankN.json`, one per rank, in the folder."""
    text = "".join(lines(rank, kernels, mark, at) for rank in ranks)
    return sorted(sketch.write(text.replace("RUN ", f"{folder.name} "), folder.parent))


def take(root: Path, *paths: Path, **options: object) -> IngestReport:
    """Ingest into the warehouse at `root`; files that are cut short are taken as they are."""
    store = Store.open_or_create(root)
    requested = Options(**{"min_age_s": 0, **options})  # type: ignore[arg-type]
    return ingest(store, Catalog.load(), paths, requested)


def take_each(warehouse: Warehouse, files: Mapping[str, Path], folder: Path) -> None:
    """Takes files in with one call, each as the run named; `folder` is for links to them."""
    links = [folder / run / path.name.replace(stem(path.name), run) for run, path in files.items()]
    for link, path in zip(links, files.values(), strict=True):
        link.parent.mkdir(parents=True)
        link.symlink_to(path.resolve())
    report = warehouse.ingest(*links, jobs=1)
    assert {(file.run, file.state) for file in report.files} == {(run, "intact") for run in files}


def states(report: IngestReport) -> dict[str, str]:
    """File name → state."""
    return {file.path.name: file.state for file in report.files}


def only(report: IngestReport) -> FileOutcome:
    """The one file of a report."""
    (file,) = report.files
    return file


def seen(root: Path, sql: str) -> list[tuple[object, ...]]:
    """Rows of a query over `events` and `kernels` of every published run."""
    store = Store.open(root)
    with scratch(1) as con:
        for table in ("events", "kernels"):
            parts = []
            for run in store.runs():
                version = store.newest(run)
                for scan in version.scan_plan(table) if version else ():
                    ranks = ", ".join(map(str, scan.ranks or ()))
                    where = f" WHERE rank IN ({ranks})" if scan.ranks is not None else ""
                    path = str(store.path(scan.path)).replace("'", "''")
                    parts.append(f"FROM read_parquet('{path}', hive_partitioning = false){where}")
            con.execute(
                f"CREATE VIEW {table} AS {' UNION ALL '.join(parts) or 'SELECT NULL AS name WHERE false'}"
            )
        return con.execute(sql).fetchall()


def ranks_seen(root: Path) -> dict[str, tuple[int, ...]]:
    """Run → the ranks that readers see."""
    store = Store.open(root)
    versions = [store.newest(run) for run in store.runs()]
    return {version.run: version.ranks for version in versions if version}


def files_under(root: Path) -> dict[str, str]:
    """Every file of a warehouse with its content's hash: two listings differ where anything was written."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def start(root: Path, paths: Sequence[Path], **options: object) -> subprocess.Popen[str]:
    """`tw ingest` in a separate process, started."""
    words = [] if options.get("inbox") else [str(path) for path in paths]
    for name, value in {"min_age": "0s", **options}.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return subprocess.Popen(
        [*cli_runner.TW, "ingest", "-w", str(root), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli_runner.environment(),
        text=True,
    )
