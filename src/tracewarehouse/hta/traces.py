"""The traces of one analysis object: in a warehouse, as one run, with results as pandas frames."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.hta.figures import library
from tracewarehouse.warehouse import Warehouse

US = 1_000
log = logging.getLogger("tracewarehouse.hta")
Files = Mapping[int, str | Path] | Sequence[str | Path]


class Opened:
    """One run of a warehouse, a temporary one where none is named; `inputs` are the folders of its traces."""

    def __init__(
        self,
        house: Warehouse,
        run: str,
        inputs: Iterable[Path] = (),
    ) -> None:
        self.root, self.house, self.run = house.root, house.select(runs=[run]), run
        self.inputs = frozenset(path.resolve() for path in inputs)
        self.keeper: Opened | None = None  # whose temporary folder this one reads
        (about,) = self.house.runs().rows()
        self.start_ns: int = about["start_ns"] or 0

    def newest(self) -> Opened:
        """The same run as it is now: a derivation has made a new version of it. This one keeps its folder."""
        found = Opened(Warehouse(self.root), self.run, self.inputs)
        found.keeper = self
        return found

    @property
    def ranks(self) -> list[int]:
        """The ranks of the run, in order."""
        return [row["rank"] for row in self.house.query("SELECT rank FROM ranks ORDER BY rank").rows()]

    def selected(self, ranks: int | Iterable[int] | None) -> list[int]:
        """The ranks asked for, all of them for None or an empty list. Raises ParamError for one not there."""
        wanted = [ranks] if isinstance(ranks, int) else list(ranks or ())
        known = self.ranks
        missing = [rank for rank in wanted if rank not in known]
        if missing:
            raise ParamError(f"{self.run} has no rank {missing[0]}", f"it has {', '.join(map(str, known))}")
        return wanted or known

    def frame(self, analysis: str, ranks: Iterable[int] | None = None, **params: object) -> Any:
        """Rows of an analysis as a pandas frame, in ns; ranks that lack what it needs are left out."""
        library("pandas")
        house = self.house if ranks is None else self.house.select(ranks=list(ranks))
        result = house.run(analysis, None, **params)
        for each in result.abstained:
            log.warning("%s: rank %s is left out: %s", analysis, each.rank, each.reason)
        return result.pandas()

    def query(self, sql: str) -> Any:
        """Rows of a statement as a pandas frame."""
        library("pandas")
        return self.house.query(sql).pandas()

    def since_start(self, ts_ns: Any) -> Any:
        """Times of a column in µs after the first event of the run."""
        return (ts_ns - self.start_ns) / US


def opened(
    trace_files: Files | None,
    trace_dir: str | Path | None,
    warehouse: str | Path | None,
    run: str | None = None,
) -> Opened:
    """The traces in a folder, or the files by rank, ingested into a warehouse.

    Raises ParamError where it is not one of the two, TwError where no file can be read.
    """
    if (trace_files is None) == (trace_dir is None):
        raise ParamError("give either trace_dir or trace_files", "TraceAnalysis(trace_dir='traces/')")
    root = Path(mkdtemp(prefix="tw-hta-")) if warehouse is None else Path(warehouse)
    house = Warehouse(root)
    try:
        found = _opened(house, trace_files, trace_dir, run)
    except BaseException:
        if warehouse is None:
            rmtree(root, ignore_errors=True)
        raise
    if warehouse is None:
        finalize(found, rmtree, root, ignore_errors=True)
    return found


def _opened(house: Warehouse, files: Files | None, folder: str | Path | None, run: str | None) -> Opened:
    if folder is not None:
        return Opened(house, _folder(house, Path(folder), run), [Path(folder)])
    files = files or ()
    paths = files.values() if isinstance(files, Mapping) else files
    return Opened(house, _files(house, files, run), [Path(path).parent for path in paths])


def _folder(house: Warehouse, path: Path, run: str | None) -> str:
    if not path.is_dir():
        raise ParamError(f"{path} is no folder", "trace_dir is a folder with one trace file per rank")
    report = house.ingest(path, run=run)
    return _one_run(str(path), report)


def _files(house: Warehouse, files: Files, run: str | None) -> str:
    if not files:
        raise ParamError("trace_files is empty", "it maps a rank to its file")
    if not isinstance(files, Mapping):
        return _one_run("trace_files", house.ingest(*map(Path, files), run=run))
    name = run or Path(next(iter(files.values()))).absolute().parent.name or "trace"
    for rank, path in sorted(files.items()):
        report = house.ingest(Path(path), run=name, rank=rank)
        found = _one_run(str(path), report)
    return found


def _one_run(what: str, report: Any) -> str:
    refused = report.of("refused")
    for file in refused:
        log.warning("%s is left out: %s", file.path, file.reason)
    runs = [each.run for each in report.runs]
    if len(runs) == 1:
        return str(runs[0])
    if runs:
        raise ParamError(f"{what} holds several runs: {', '.join(runs)}", "name the files in trace_files")
    reasons = "; ".join(f"{file.path.name}: {file.reason}" for file in refused[:3])
    raise TwError(f"{what}: no trace could be read" + (f" ({reasons})" if reasons else ""))
