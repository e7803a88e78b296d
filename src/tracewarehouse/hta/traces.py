"""The traces of an analysis object: one run in a warehouse, with results as pandas frames by HTA's names."""

from __future__ import annotations

import gzip
import logging
import re
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
        used_renderer = renderer or library("plotly.io").renderers.default
        for figure in figures if used_renderer else ():
            try:
                figure.show(renderer=renderer or None)
            except (ValueError, RuntimeError, ImportError, OSError) as error:
                self._show_interactively(figure, used_renderer, error)

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
    if not any(name in IMAGES for name in renderer.split("+")):
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
        package = "'tracewarehouse[hta]'" if root in EXTRA else root
        raise TwError(f"{root} is not installed", f"pip install {package}") from error


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
        requested = [ranks] if isinstance(ranks, int) else list(ranks or ())
        present = self.ranks
        missing = [rank for rank in requested if rank not in present]
        if missing:
            raise ParamError(f"{self.run} has no rank {missing[0]}", f"it has {', '.join(map(str, present))}")
        return requested or present

    def frame(self, analysis: str, ranks: Iterable[int] | None = None, **params: object) -> Any:
        """Rows of an analysis as a pandas frame, in ns; ranks without the needed data are skipped."""
        library("pandas")
        warehouse = self.warehouse if ranks is None else self.warehouse.select(ranks=list(ranks))
        result = warehouse.analyze(analysis, None, **params)
        for skipped in result.skipped:
            log.warning("%s: skipped rank %s: %s", analysis, skipped.rank, skipped.reason)
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
    runs = [run.run for run in report.runs]
    if len(runs) == 1:
        return str(runs[0])
    if runs:
        raise ParamError(
            f"{what} has traces of several runs: {', '.join(runs)}",
            "list the files of one run in trace_files",
        )
    reasons = "; ".join(f"{file.path.name}: {file.reason}" for file in refused[:3])
    raise TwError(f"{what}: no trace could be read" + (f" ({reasons})" if reasons else ""))


COLUMNS = ["name", "sum (us)", "max (us)", "min (us)", "stddev", "mean (us)"]


def by_rank(frame: Any, columns: list[str]) -> Any:
    """The columns, with `device` after `rank` if a rank has several devices."""
    several = len(frame) and frame.groupby("rank")["device"].nunique().max() > 1
    index = columns.index("rank") + 1
    shown = [*columns[:index], "device", *columns[index:]] if several else columns
    return frame[shown].reset_index(drop=True)


# Kernels


def kernel_types(traces: LoadedTraces, memory: bool) -> Any:
    """`kernel_type, sum, percentage`: busy time of all ranks in exclusive classes, µs and % of their sum."""
    frame = traces.frame("kernel_type_breakdown")
    frame["kernel_type"] = [
        " overlapping ".join(kind.upper() for kind in name.split("+") if memory or kind != "memory")
        for name in frame["class"]
    ]
    busy = frame[frame.kernel_type != ""].groupby("kernel_type")["class_ns"].sum().reset_index()
    busy["sum"] = busy.class_ns / US
    busy["percentage"] = (100 * busy.class_ns / busy.class_ns.sum()).round(1)
    ordered = busy.sort_values(["sum", "kernel_type"], ascending=[False, True], ignore_index=True)
    return ordered[["kernel_type", "sum", "percentage"]]


def kernels(traces: LoadedTraces, duration_ratio: float, num_kernels: int, memory: bool) -> Any:
    """One row per kind, name and rank, in µs: the largest of each kind and rank, the rest as `others`."""
    frame = traces.frame("kernel_summary")
    frame["kernel_type"] = frame.kind.str.upper()
    if not memory:
        frame = frame[frame.kind != "memory"]
    frame = combine_statistics(frame, ["rank", "kernel_type", "name"])
    folded = fold_small(frame, ["rank", "kernel_type"], duration_ratio, num_kernels, ())
    ordered = folded.sort_values(["kernel_type", "name", "rank"], ignore_index=True)
    return ordered[[*COLUMNS, "kernel_type", "rank"]]


def fold_small(frame: Any, keys: list[str], ratio: float, most: int, never_folded: tuple[str, ...]) -> Any:
    """The largest rows of each group, and the others combined into one row named `others`.

    These are the rows that together account for `ratio` of the time of the group, at most `most`, and the
    names in `never_folded`. Groups of at most `most` rows are not changed. `others` has the sum, extremes,
    mean and standard deviation of all its durations.
    """
    if not 0 < ratio <= 1:
        raise ParamError(f"duration_ratio must be above 0 and at most 1, not {ratio}")
    if most < 1:
        raise ParamError(f"num_kernels must be at least 1, not {most}")
    if frame.empty:
        return _in_us(frame)
    frame = frame.sort_values([*keys, "sum_ns", "name"], ascending=[*(True,) * len(keys), False, True])
    groups = frame.groupby(keys)
    earlier_ns = groups["sum_ns"].cumsum() - frame.sum_ns
    is_large = (groups.cumcount() < most) & (earlier_ns < ratio * groups["sum_ns"].transform("sum"))
    is_small_group = groups["sum_ns"].transform("size") <= most
    is_listed = is_small_group | is_large | frame.name.isin(never_folded)
    frame["name"] = frame["name"].where(is_listed, "others")
    return _in_us(combine_statistics(frame, [*keys, "name"]))


def combine_statistics(frame: Any, keys: list[str]) -> Any:
    """Combines statistics of names into those of groups, from counts, sums and sums of squares."""
    squares = (frame["count"] - 1) * frame.std_ns.fillna(0).astype(float) ** 2 + frame[
        "count"
    ] * frame.mean_ns**2
    combined = (
        frame.assign(squares=squares)
        .groupby(keys, sort=False, dropna=False)
        .agg(
            count=("count", "sum"),
            sum_ns=("sum_ns", "sum"),
            squares=("squares", "sum"),
            min_ns=("min_ns", "min"),
            max_ns=("max_ns", "max"),
        )
        .reset_index()
    )
    combined["mean_ns"] = combined.sum_ns / combined["count"]
    spread = (combined.squares - combined["count"] * combined.mean_ns**2).clip(lower=0)
    combined["std_ns"] = (spread / (combined["count"] - 1).where(combined["count"] > 1)) ** 0.5
    return combined


def _in_us(frame: Any) -> Any:
    for name in ("sum", "max", "min", "mean"):
        frame[f"{name} (us)"] = frame[f"{name}_ns"] / US
    frame["stddev"] = frame.std_ns.fillna(0).astype(float) / US
    return frame


# Annotations


def annotation_summary(
    traces: LoadedTraces, on_gpu: bool, ratio: float, most: int, allowed: list[str] | None
) -> Any:
    """One row per annotation and rank, durations in µs; None without annotations."""
    frame = traces.frame("annotation_breakdown")
    frame = frame[frame.on_gpu == on_gpu]
    if frame.empty:
        return None
    never_folded = tuple(
        name for name in frame.name.unique() if any(re.search(pattern, name) for pattern in allowed or [])
    )
    folded = fold_small(combine_statistics(frame, ["rank", "name"]), ["rank"], ratio, most, never_folded)
    ordered = folded.sort_values(["rank", "name"], ignore_index=True)
    return ordered[[*COLUMNS, "rank"]]


# Idle time


def idle(traces: LoadedTraces, ranks: list[int], streams: list[int] | None, delay_us: float) -> Any:
    """`rank, stream, idle_category, idle_time` (µs), `idle_time_ratio`: share of the stream's idle time."""
    frame = _of_streams(traces, "stream_idle", ranks, streams, delay_us)
    frame["idle_category"] = frame.cause
    frame["idle_time"] = frame.idle_ns / US
    frame["idle_time_ratio"] = frame.share.round(2)
    columns = ["rank", "stream", "idle_category", "idle_time", "idle_time_ratio"]
    return by_rank(frame.sort_values(["rank", "device", "stream", "cause"]), columns)


def idle_intervals(traces: LoadedTraces, ranks: list[int], streams: list[int] | None, delay_us: float) -> Any:
    """Statistics of the gaps of a stream by category in µs: count, mean, std, min, quartiles, max."""
    frame = _of_streams(traces, "stream_idle_intervals", ranks, streams, delay_us)
    frame["idle_interval"] = frame.idle_ns / US
    single = frame.empty or frame.groupby("rank")["device"].nunique().max() == 1
    keys = ["rank", *([] if single else ["device"]), "stream", "cause"]
    statistics = frame.groupby(keys)["idle_interval"].describe().round(2)
    empty: dict[str, list[object]] = {key: [] for key in keys}
    statistics = statistics.reset_index() if len(statistics) else statistics.assign(**empty)
    return statistics.rename(columns={"cause": "idle_category"}).set_index("idle_category")


def _of_streams(
    traces: LoadedTraces, analysis: str, ranks: list[int], streams: list[int] | None, delay_us: float
) -> Any:
    frame = traces.frame(analysis, ranks, kernel_wait_ns=round(delay_us * US))
    return frame[frame.stream.isin(streams)].copy() if streams else frame


def frames_by_rank(frame: Any, ranks: list[int]) -> dict[int, Any]:
    rows = {int(rank): of_rank.drop(columns="rank") for rank, of_rank in frame.groupby("rank")}
    return {rank: rows[rank].reset_index(drop=True) for rank in ranks if rank in rows}


def described(series: Mapping[int, Any], key: str, value: str) -> Any:
    """Statistics of the column `value` of time series, by rank and `key`; None without rows."""
    frames = [
        frame.assign(rank=rank)[["rank", key, value]].groupby(["rank", key]).describe()
        for rank, frame in series.items()
        if len(frame)
    ]
    return library("pandas").concat(frames) if frames else None


def write_series(
    traces: LoadedTraces,
    rank: int,
    folder: Path,
    name: str,
    *,
    counters: Iterable[str] = (),
    overlays: Iterable[str] = (),
) -> Path:
    """Writes the trace with added counters and overlays; returns the file.

    `{}` in `name` is the name of the input without its extension. Raises ParamError for the input folder.
    """
    if folder.resolve() in traces.inputs:
        raise ParamError(
            f"{folder} contains the input traces",
            "use another folder; there the file would be read as another rank",
        )
    (about,) = traces.rows(f"SELECT source_name FROM ranks WHERE rank = {rank}")
    stem = about["source_name"].removesuffix(".gz").removesuffix(".json")
    text = traces.warehouse.export_trace(traces.run, rank, counters=counters, overlays=overlays)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name.format(stem)}.json.gz"
    with gzip.open(target, "wt", encoding="utf-8") as out:
        out.writelines(text)
    return target


def write_each(
    traces: LoadedTraces, ranks: Iterable[int], folder: Path, name: str, counters: list[str]
) -> None:
    """Writes several ranks; those without data for counters are logged and skipped.

    Raises ParamError if no rank has data.
    """
    written, last_error = 0, None
    for rank in ranks:
        try:
            write_series(traces, rank, folder, name, counters=counters)
            written += 1
        except ParamError as error:
            log.warning("skipped rank %s: no counters: %s", rank, error)
            last_error = error
    if last_error is not None and not written:
        raise last_error


ANNOTATIONS = """
    SELECT name, ts_ns
    FROM annotations
    WHERE device IS NULL AND rank = {rank}
    ORDER BY ts_ns, event_id"""
MOST_NAMES = 8
BOUND_BY = {
    "host": "cpu_bound",
    "host_gap": "cpu_bound",
    "launch": "gpu_kernel_launch_overhead",
    "kernel_gap": "gpu_kernel_kernel_overhead",
    "computation": "gpu_compute_bound",
    "memory": "gpu_compute_bound",
    "communication": "gpu_communication_bound",
}
SEGMENTS = """
    SELECT path.position, path.event_id, path.type, path.category, path.segment_ns, path.start_ns,
        events.name, events.category AS cat, events.pid, events.tid, coalesce(events.stream, -1) AS stream
    FROM critical_path AS path
    LEFT JOIN events USING (run_id, rank, event_id)
    WHERE path.rank = {rank}"""


class CriticalPath:
    """The critical path of one scope of a rank, as segments that cover its entire time.

    It is not a graph. HTA's `critical_path_nodes`, `critical_path_edges_set`, `critical_path_events_set`,
    `node_list`, `nodes`, `edges` and all that networkx adds to them are missing:
    `get_critical_path_breakdown()` has the events of the path, in order.
    """

    def __init__(self, traces: LoadedTraces, rank: int, scope: str) -> None:
        self.traces, self.rank, self.scope = traces, rank, scope

    def __getattr__(self, name: str) -> Any:
        message = f"the critical path has no {name}: it is not a graph, but a table of segments"
        error = AttributeError(message, name=name, obj=self)
        error.add_note("hint: get_critical_path_breakdown() has its events, in order")
        raise error

    def get_critical_path_breakdown(self, data_load_events: list[str] | None = None) -> Any:
        """`event_idx, duration, type, s_name, cat, pid, tid, stream, category, bound_by`, in path order.

        Durations are in µs and sum to the duration of the scope. `bound_by` is HTA's name of the category.
        """
        scope = self.scope.replace("'", "''")
        frame = self.traces.query(f"{SEGMENTS.format(rank=self.rank)} AND path.scope = '{scope}'")
        frame = frame.sort_values("position", ignore_index=True)
        frame["duration"] = frame.segment_ns / US
        frame["bound_by"] = [BOUND_BY.get(category, category) for category in frame.category]
        for pattern in data_load_events or []:
            loads = frame.name.fillna("").str.contains(pattern, regex=True) & (frame.bound_by == "cpu_bound")
            frame.loc[loads, "bound_by"] = "data_loading"
        frame = frame.rename(columns={"event_id": "event_idx", "name": "s_name"})
        names = [
            "event_idx",
            "duration",
            "type",
            "s_name",
            "cat",
            "pid",
            "tid",
            "stream",
            "category",
            "bound_by",
        ]
        return frame[names]

    def summary(self) -> Any:
        """Share of the path in % by `bound_by`, largest first."""
        frame = self.get_critical_path_breakdown()
        shares = 100 * frame.groupby("bound_by")["duration"].sum() / frame["duration"].sum()
        return shares.sort_values(ascending=False)


def critical_path(
    traces: LoadedTraces, rank: int, annotation: str, instance: int | tuple[int, int] | None
) -> CriticalPath:
    """Derives the critical path of an annotation instance, or of the entire trace for ''.

    `annotation` matches a part of the name. Raises ParamError if there is no such instance.
    """
    if isinstance(instance, tuple):
        raise ParamError(
            "a range of instances is not supported", "use one instance, or '' for the entire trace"
        )
    (rank,) = traces.select_ranks([rank])
    scope = "trace"
    selected: dict[str, Any] = {"entire_trace": True}
    if annotation:
        name, number = _instance(traces, rank, annotation, instance or 0)
        scope, selected = f"annotation {name}#{number}", {"annotations": f"{name}#{number}"}
        if step := re.fullmatch(r"ProfilerStep#(\d+)", name):
            scope, selected = f"step {step[1]}", {"steps": int(step[1])}
    traces.warehouse.derive("critical_path", traces.run, ranks=rank, **selected)
    return CriticalPath(traces.newest(), rank, scope)


def _instance(traces: LoadedTraces, rank: int, part: str, number: int) -> tuple[str, int]:
    """The name of the n-th annotation that contains `part`, and how many earlier ones have that name."""
    names = [row["name"] for row in traces.rows(ANNOTATIONS.format(rank=rank))]
    matches = [index for index, name in enumerate(names) if part in (name or "")]
    if not matches:
        distinct = list(dict.fromkeys(name for name in names if name))
        listed, more = ", ".join(distinct[:MOST_NAMES]) or "none", len(distinct) - MOST_NAMES
        hint = f"annotations: {listed}" + (f" and {more} more" if more > 0 else "")
        raise ParamError(f"rank {rank} has no annotation that contains {part!r}", hint)
    if not 0 <= number < len(matches):
        count = f"{len(matches)} annotations contain {part!r}"
        raise ParamError(f"there is no instance {number}: {count}", "instances are numbered from 0")
    index = matches[number]
    return names[index], names[:index].count(names[index])
