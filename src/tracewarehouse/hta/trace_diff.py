"""`TraceDiff` and `LabeledTrace` with HTA's methods: operators and kernels of two traces by name."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta import traces
from tracewarehouse.hta.common.trace import Trace
from tracewarehouse.hta.trace_analysis import TraceAnalysis
from tracewarehouse.hta.traces import US, LoadedTraces, load_traces, log
from tracewarehouse.present.render.text import plural

SHORT = "SELECT DISTINCT name, short_name FROM kernels WHERE short_name IS NOT NULL"


class DeviceType(Enum):
    """Device of the compared rows."""

    CPU = 1
    GPU = 2
    ALL = 3


class LabeledTrace:
    """A trace of one or several ranks with a label, which prefixes its columns.

    `t` is a `TraceAnalysis` or its `t`, `trace_dir` a folder. Raises ParamError unless exactly one is given.
    """

    def __init__(
        self,
        label: str | None = None,
        t: TraceAnalysis | Trace | None = None,
        trace_dir: str | Path | None = None,
    ) -> None:
        if (t is None) == (trace_dir is None):
            raise ParamError(
                "specify either t or trace_dir", "LabeledTrace(label='before', trace_dir='traces/')"
            )
        if t is not None and not isinstance(t, TraceAnalysis | Trace):
            raise ParamError(f"t is a {type(t).__name__}, not a TraceAnalysis", "for a folder: trace_dir=…")
        self.traces: LoadedTraces = t.traces if t else load_traces(None, trace_dir, None)
        self.label = label or self.traces.run

    def ranks(self) -> list[int]:
        """The ranks of the trace."""
        return self.traces.ranks

    def iterations(self) -> list[int]:
        """Profiler step numbers of all ranks."""
        return self.traces.steps()

    def extract_ops(
        self,
        rank: int | list[int] | None = None,
        iteration: int | list[int] | None = None,
        device_type: DeviceType = DeviceType.ALL,
    ) -> Any:
        """`rank, step, on_gpu, category, name, count, sum_ns` of ranks and steps; by default the first ones.

        A trace without steps is summarized in total. Raises ParamError for an unknown rank or step.
        """
        ranks, steps, trace_steps = self.selection(rank, iteration)
        missing = [step for step in steps if step not in trace_steps]
        if missing:
            hint = f"it has {', '.join(map(str, trace_steps))}"
            raise ParamError(f"{self.label} has no step {missing[0]}", hint)
        rows = self.traces.frame("name_summary", ranks, by_step=bool(trace_steps))
        rows = rows[rows.step.isin(steps)] if trace_steps else rows
        if device_type is DeviceType.ALL:
            return rows
        return rows[rows.on_gpu == (device_type is DeviceType.GPU)]

    def selection(
        self, rank: int | list[int] | None, iteration: int | list[int] | None
    ) -> tuple[list[int], list[int], list[int]]:
        """The selected ranks and steps, and the steps of the trace."""
        ranks = self.traces.select_ranks(rank)[: None if rank is not None else 1]
        trace_steps = self.iterations()
        steps = [iteration] if isinstance(iteration, int) else list(iteration or trace_steps[:1])
        return ranks, steps, trace_steps

    def summed(self, rank: int | list[int] | None, iteration: int | list[int] | None) -> tuple[int, int]:
        """The number of ranks and of steps that `extract_ops` selects; 0 steps for a trace without steps."""
        ranks, steps, trace_steps = self.selection(rank, iteration)
        return len(set(ranks)), len(set(steps)) if trace_steps else 0

    def get_ops_summary(self, ops: Any) -> Any:
        """`cat, name, short_name, counts, total_duration` (µs) of the result of `extract_ops`."""
        short = {row["name"]: row["short_name"] for row in self.traces.rows(SHORT)}
        keys = ["category", "name"]
        summary = ops.groupby(keys, dropna=False, as_index=False).agg(
            counts=("count", "sum"), ns=("sum_ns", "sum")
        )
        summary["short_name"] = [short.get(name, name) for name in summary.name]
        summary["total_duration"] = summary.ns / US
        summary = summary.rename(columns={"category": "cat"})
        return summary[["cat", "name", "short_name", "counts", "total_duration"]]


Side = LabeledTrace | TraceAnalysis | Trace | str | Path


def labeled(trace: Side, label: str) -> LabeledTrace:
    """The trace as a `LabeledTrace`."""
    if isinstance(trace, LabeledTrace):
        return trace
    if isinstance(trace, TraceAnalysis | Trace):
        return LabeledTrace(label, t=trace)
    return LabeledTrace(label, trace_dir=trace)


class TraceDiff:
    """Differences of two traces in operators and kernels, by name."""

    figures = traces.Figures()

    @classmethod
    def compare_traces(
        cls,
        control: Side,
        test: Side,
        control_rank: int | list[int] | None = None,
        test_rank: int | list[int] | None = None,
        control_iteration: int | list[int] | None = None,
        test_iteration: int | list[int] | None = None,
        device_type: DeviceType = DeviceType.ALL,
        use_short_name: bool = False,
    ) -> Any:
        """By name: `L_counts, L_total_duration` (µs) of both labels, their differences, and `+`, `-` or `=`.

        The default is the first rank and step of each trace. Values of several ranks or steps are totals; a
        line in the log says if the traces differ in the number of ranks or steps.
        """
        base, head = labeled(control, "Control"), labeled(test, "Test")
        if base.label == head.label:
            raise ParamError(
                f"both traces have the label {base.label}", "set different labels: LabeledTrace(label=…)"
            )
        key = "short_name" if use_short_name else "name"
        sides = (base, control_rank, control_iteration), (head, test_rank, test_iteration)
        ops = (
            trace.get_ops_summary(trace.extract_ops(rank, iteration, device_type))
            for trace, rank, iteration in sides
        )
        before, after = (rows.groupby(key)[["counts", "total_duration"]].sum() for rows in ops)
        parts = (trace.summed(rank, iteration) for trace, rank, iteration in sides)
        for noun, count, other_count in zip(("rank", "step"), *parts, strict=True):
            if count != other_count and count and other_count:
                totals = base.label, plural(count, noun), head.label, other_count
                log.warning("values are totals: %s has %s, %s %s", *totals)
        table = before.add_prefix(f"{base.label}_").join(after.add_prefix(f"{head.label}_"), how="outer")
        table = table.fillna(0)
        table["diff_counts"] = table[f"{head.label}_counts"] - table[f"{base.label}_counts"]
        times = [table[f"{label}_total_duration"] for label in (base.label, head.label)]
        table["diff_duration"] = times[1] - times[0]
        table["counts_change_categories"] = [
            "+" if change > 0 else "-" if change < 0 else "=" for change in table["diff_counts"]
        ]
        return table

    @classmethod
    def ops_diff(
        cls,
        control: Side,
        test: Side,
        control_rank: int | list[int] | None = None,
        test_rank: int | list[int] | None = None,
        control_iteration: int | list[int] | None = None,
        test_iteration: int | list[int] | None = None,
        device_type: DeviceType = DeviceType.ALL,
    ) -> dict[str, list[str]]:
        """Names that were added, deleted, increased, decreased or unchanged, by count."""
        base, head = labeled(control, "Control"), labeled(test, "Test")
        ranks, steps = (control_rank, test_rank), (control_iteration, test_iteration)
        frame = cls.compare_traces(base, head, *ranks, *steps, device_type)
        before, after = frame[f"{base.label}_counts"], frame[f"{head.label}_counts"]
        groups = {
            "added": (before == 0) & (after > 0),
            "deleted": (before > 0) & (after == 0),
            "increased": (before > 0) & (after > before),
            "decreased": (after > 0) & (after < before),
            "unchanged": (after > 0) & (after == before),
        }
        return {name: frame[rows].index.tolist() for name, rows in groups.items()}

    @classmethod
    def visualize_counts_diff(
        cls, df: Any, show_image: bool = True, export_image_path: str | Path | None = None
    ) -> None:
        """Shows counts side by side, and writes them to a file (HTML or image) if given."""
        cls._draw(df, "counts", "diff_counts", "Ops Count Comparison", show_image, export_image_path)

    @classmethod
    def visualize_duration_diff(
        cls, df: Any, show_image: bool = True, export_image_path: str | Path | None = None
    ) -> None:
        """Shows durations side by side, and writes them to a file (HTML or image) if given."""
        title = "Ops Duration Comparison"
        cls._draw(df, "total_duration", "diff_duration", title, show_image, export_image_path)

    @classmethod
    def _draw(
        cls, df: Any, what: str, difference: str, title: str, show: bool, path: str | Path | None
    ) -> None:
        ends = f"_{what}"
        names = [name for name in df.columns if name.endswith(ends) and name != difference]
        columns = {name.removesuffix(ends): name for name in names}
        if len(columns) != 2 or difference not in df.columns:
            raise ParamError("not a result of compare_traces", "df = TraceDiff.compare_traces(…)")
        unit = "µs" if what == "total_duration" else ""
        figure = traces.grouped_bars(df, {**columns, "Difference": difference}, title, unit)
        if show:
            cls.figures.show(figure)
        if path is not None:
            traces.save(figure, Path(path))
