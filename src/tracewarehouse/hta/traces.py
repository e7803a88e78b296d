"""The traces of an analysis object: one run in a warehouse, with results as pandas frames."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import Any
from weakref import finalize

from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.temp_folders import new_folder
from tracewarehouse.warehouse import Warehouse

PERCENT = ".2%"
IMAGES = ("png", "jpeg", "jpg", "svg", "pdf")  # renderers that need kaleido and Chrome
log = logging.getLogger("tracewarehouse.hta")


class Figures:
    """The figures of the last call, in display order."""

    def __init__(self) -> None:
        self.last: list[Any] = []
        self._failed = False

    def show(self, *figures: Any, renderer: str | None = None) -> None:
        """Stores the figures, and shows each with the given renderer or plotly's default one.

        Without a browser or notebook, plotly has no default renderer, and nothing is shown. A figure that
        cannot be shown never raises: the first time, one line in the log says what is missing, and notebooks
        show it interactively.
        """
        self.last = list(figures)
        wanted = renderer or library("plotly.io").renderers.default
        for figure in figures if wanted else ():
            try:
                figure.show(renderer=renderer or None)
            except (ValueError, RuntimeError, ImportError, OSError) as error:
                self._show_interactively(figure, wanted, error)

    def _show_interactively(self, figure: Any, renderer: str, error: Exception) -> None:
        """Shows a figure that the renderer failed to show: in a notebook as HTML, elsewhere not at all."""
        in_notebook = _in_notebook()
        if not self._failed:
            instead = (
                "they are shown interactively"
                if in_notebook
                else "figures.last has them: figure.write_html(file) writes one"
            )
            missing = _missing(renderer) or str(error).strip().partition("\n")[0]
            log.warning("figures cannot be shown as %s (%s); %s", renderer, missing, instead)
            self._failed = True
        if in_notebook:
            with suppress(ValueError, RuntimeError, ImportError, OSError):
                figure.show(renderer="notebook")


def _missing(renderer: str) -> str | None:
    """What to install for a renderer; None if that is not the problem."""
    if not (_is_installed("IPython") and _is_installed("nbformat")):
        return "pip install 'tracewarehouse[hta]'"
    if not any(each in IMAGES for each in renderer.split("+")):
        return None
    if not _is_installed("kaleido"):
        return "images need kaleido and Chrome: pip install kaleido, then plotly_get_chrome"
    return "images need Chrome or Chromium: install it, or run plotly_get_chrome"


def _is_installed(name: str) -> bool:
    return find_spec(name) is not None


def _in_notebook() -> bool:
    """Whether an IPython kernel or shell is running."""
    return _is_installed("IPython") and import_module("IPython").get_ipython() is not None


def save(figure: Any, path: Path) -> None:
    """Writes a figure as HTML or as an image, by the file extension. Raises TwError without kaleido."""
    if path.suffix in (".html", ".htm"):
        figure.write_html(str(path))
        return
    library("kaleido")  # plotly writes images with it
    figure.write_image(str(path))


def bars(frame: Any, x: str, y: str | list[str], title: str, *, percent: bool = False, **options: Any) -> Any:
    """A bar chart, with an axis in percent for shares."""
    figure = library("plotly.express").bar(frame, x=x, y=y, title=title, **options)
    if percent:
        figure.update_layout(yaxis_tickformat=PERCENT, yaxis_title="Percentage")
    return figure


def pie(frame: Any, values: str, names: str, title: str) -> Any:
    """A pie chart."""
    return library("plotly.express").pie(frame, values=values, names=names, title=title)


def histogram(frame: Any, x: str, title: str) -> Any:
    """A histogram of one column."""
    return library("plotly.express").histogram(frame, x=x, title=title, nbins=300)


def grouped_bars(frame: Any, columns: dict[str, str], title: str, unit: str = "") -> Any:
    """Grouped bars of several columns over the index; `columns` maps legend names to columns."""
    go = library("plotly.graph_objects")
    data = [go.Bar(name=name, x=frame.index, y=frame[column]) for name, column in columns.items()]
    figure = go.Figure(data=data)
    figure.update_layout(barmode="group", title_text=title, yaxis_title=unit)
    return figure


def mean_bars(frame: Any, title: str) -> list[Any]:
    """One chart per name: the mean of each rank, with whiskers from minimum to maximum."""
    charts = []
    for name, rows in frame.groupby("name", sort=False):
        if name != "others":
            charts.append(
                bars(
                    rows,
                    "rank",
                    "mean (us)",
                    f"{title} = {name}",
                    error_y=rows["max (us)"] - rows["mean (us)"],
                    error_y_minus=rows["mean (us)"] - rows["min (us)"],
                )
            )
    return charts


EXTRA = ("IPython", "nbformat", "pandas", "plotly")


def library(name: str) -> ModuleType:
    """The module of that name; raises TwError if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        wanted = "'tracewarehouse[hta]'" if root in EXTRA else root
        raise TwError(f"{root} is not installed", f"pip install {wanted}") from error


US = 1_000
Files = Mapping[int, str | Path] | Sequence[str | Path]


class LoadedTraces:
    """One run of a warehouse; `inputs` are the folders of its traces."""

    def __init__(
        self,
        warehouse: Warehouse,
        run: str,
        inputs: Iterable[Path] = (),
    ) -> None:
        self.root, self.warehouse, self.run = warehouse.root, warehouse.select(runs=[run]), run
        self.inputs = frozenset(path.resolve() for path in inputs)
        self.folder_owner: LoadedTraces | None = None  # deletes the temporary folder of the warehouse
        (about,) = self.warehouse.runs().rows()
        self.start_ns: int = about["start_ns"] or 0

    def newest(self) -> LoadedTraces:
        """The newest version of the run, for example after a derivation."""
        newest = LoadedTraces(Warehouse(self.root), self.run, self.inputs)
        newest.folder_owner = self
        return newest

    @property
    def ranks(self) -> list[int]:
        """The ranks of the run, in order."""
        return [row["rank"] for row in self.rows("SELECT rank FROM ranks ORDER BY rank")]

    def steps(self) -> list[int]:
        """Profiler step numbers of all ranks, in order."""
        return sorted(int(step) for step in self.frame("step_summary")["step"].unique())

    def select_ranks(self, ranks: int | Iterable[int] | None) -> list[int]:
        """The requested ranks; all for None or an empty list. Raises ParamError for an unknown rank."""
        wanted = [ranks] if isinstance(ranks, int) else list(ranks or ())
        known = self.ranks
        missing = [rank for rank in wanted if rank not in known]
        if missing:
            raise ParamError(f"{self.run} has no rank {missing[0]}", f"it has {', '.join(map(str, known))}")
        return wanted or known

    def frame(self, analysis: str, ranks: Iterable[int] | None = None, **params: object) -> Any:
        """Rows of an analysis as a pandas frame, in ns; ranks without the needed data are skipped."""
        library("pandas")
        warehouse = self.warehouse if ranks is None else self.warehouse.select(ranks=list(ranks))
        result = warehouse.analyze(analysis, None, **params)
        for each in result.skipped:
            log.warning("%s: skipped rank %s: %s", analysis, each.rank, each.reason)
        return result.pandas()

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query; pandas is not needed."""
        return self.warehouse.query(sql, limits=None).rows()

    def query(self, sql: str) -> Any:
        """Rows of a SQL query as a pandas frame."""
        library("pandas")
        return self.warehouse.query(sql, limits=None).pandas()

    def since_start(self, ts_ns: Any) -> Any:
        """Timestamps in µs since the first event of the run."""
        return (ts_ns - self.start_ns) / US


def load_traces(
    trace_files: Files | None,
    trace_dir: str | Path | None,
    warehouse: str | Path | None,
    run: str | None = None,
) -> LoadedTraces:
    """Ingests the traces of a folder, or files by rank, into a warehouse.

    Names of files are relative to `trace_dir`, if given. Raises ParamError without either, and for a folder
    in `trace_files`; TwError if no file can be read.
    """
    folder = None if trace_dir is None else Path(trace_dir).expanduser()
    files = None if trace_files is None else _files_of(trace_files, folder)
    if files is None and folder is None:
        raise ParamError(
            "specify trace_dir, trace_files or both",
            "TraceAnalysis(trace_dir='traces/') or TraceAnalysis(trace_files={0: 'rank0.json.gz'})",
        )
    root = new_folder() if warehouse is None else Path(warehouse)
    try:
        traces = _ingest(Warehouse(root), files, folder, run)
    except BaseException:
        if warehouse is None:
            rmtree(root, ignore_errors=True)
        raise
    if warehouse is None:
        finalize(traces, rmtree, root, ignore_errors=True)
    return traces


def _files_of(files: Files, folder: Path | None) -> Mapping[int, Path] | list[Path]:
    """The files, by rank if they are given so, with names relative to the folder."""
    if isinstance(files, str | PathLike):
        raise ParamError(
            "trace_files is a list, or maps ranks to files", f"TraceAnalysis(trace_dir={str(files)!r})"
        )
    if not files:
        raise ParamError("trace_files is empty", "it maps ranks to files")
    base, paths = folder or Path(), {}
    for key, name in files.items() if isinstance(files, Mapping) else enumerate(files):
        # As in HTA, a name that starts with the folder is not relative to it.
        path = Path(name) if Path(name).is_relative_to(base) else base / name
        if path.is_dir():
            raise ParamError(f"{path} is a folder", f"name its files, or TraceAnalysis(trace_dir='{path}')")
        paths[key] = path
    return paths if isinstance(files, Mapping) else list(paths.values())


def _ingest(
    warehouse: Warehouse,
    files: Mapping[int, Path] | list[Path] | None,
    folder: Path | None,
    run: str | None,
) -> LoadedTraces:
    if files is None:
        folder = folder or Path()
        if not folder.is_dir():
            raise ParamError(
                f"{folder} is not a folder", "trace_dir is a folder with one trace file per rank"
            )
        stored = _one_run(str(folder), warehouse.ingest(folder, run=run))
        return LoadedTraces(warehouse, stored, [folder])
    if not isinstance(files, Mapping):
        stored = _one_run("trace_files", warehouse.ingest(*files, run=run))
        return LoadedTraces(warehouse, stored, [path.parent for path in files])
    name = run or next(iter(files.values())).absolute().parent.name or "trace"
    for rank, path in sorted(files.items()):
        stored = _one_run(str(path), warehouse.ingest(path, run=name, rank=rank))
    return LoadedTraces(warehouse, stored, [path.parent for path in files.values()])


def _one_run(what: str, report: Any) -> str:
    refused = report.of("refused")
    for file in refused:
        log.warning("skipped %s: %s", file.path, file.reason)
    runs = [each.run for each in report.runs]
    if len(runs) == 1:
        return str(runs[0])
    if runs:
        raise ParamError(
            f"{what} has traces of several runs: {', '.join(runs)}",
            "list the files of one run in trace_files",
        )
    reasons = "; ".join(f"{file.path.name}: {file.reason}" for file in refused[:3])
    raise TwError(f"{what}: no trace could be read" + (f" ({reasons})" if reasons else ""))
