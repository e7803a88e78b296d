"""`TraceDiff` and `LabeledTrace` with the methods of HTA's: operators and kernels of two traces, by name."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta import figures
from tracewarehouse.hta.trace_analysis import TraceAnalysis
from tracewarehouse.hta.traces import US, Opened, opened

SHORT = "SELECT DISTINCT name, short_name FROM kernels WHERE short_name IS NOT NULL"


class DeviceType(Enum):
    """Where the rows of a comparison ran."""

    CPU = 1
    GPU = 2
    ALL = 3


class LabeledTrace:
    """A trace of one or several ranks under a label; the label is that of its columns.

    `t` is a `TraceAnalysis`, `trace_dir` a folder. Raises ParamError where it is not one of the two.
    """

    def __init__(
        self,
        label: str | None = None,
        t: TraceAnalysis | None = None,
        trace_dir: str | Path | None = None,
    ) -> None:
        if (t is None) == (trace_dir is None):
            raise ParamError(
                "give either t or trace_dir", "LabeledTrace(label='before', trace_dir='traces/')"
            )
        self.opened: Opened = t.opened if t else opened(None, trace_dir, None)
        self.label = label or self.opened.run

    def ranks(self) -> list[int]:
        """The ranks of the trace."""
        return self.opened.ranks

    def iterations(self) -> list[int]:
        """The profiler's steps, of all ranks."""
        return sorted(int(step) for step in self.opened.frame("step_summary")["step"].unique())

    def extract_ops(
        self,
        rank: int | list[int] | None = None,
        iteration: int | list[int] | None = None,
        device_type: DeviceType = DeviceType.ALL,
    ) -> Any:
        """`rank, step, on_gpu, category, name, count, sum_ns` of ranks and steps, by default the first ones.

        A trace without steps is taken as a whole. Raises ParamError for a rank or step that is not there.
        """
        ranks = self.opened.selected(rank)[: None if rank is not None else 1]
        known = self.iterations()
        steps = [iteration] if isinstance(iteration, int) else list(iteration or known[:1])
        missing = [step for step in steps if step not in known]
        if missing:
            raise ParamError(f"{self.label} has no step {missing[0]}", f"it has {', '.join(map(str, known))}")
        found = self.opened.frame("name_summary", ranks, by_step=bool(known))
        found = found[found.step.isin(steps)] if known else found
        if device_type is DeviceType.ALL:
            return found
        return found[found.on_gpu == (device_type is DeviceType.GPU)]

    def get_ops_summary(self, ops: Any) -> Any:
        """`cat, name, short_name, counts, total_duration` (µs) of what `extract_ops` gave."""
        short = {row["name"]: row["short_name"] for row in self.opened.house.query(SHORT).rows()}
        keys = ["category", "name"]
        found = ops.groupby(keys, dropna=False, as_index=False).agg(
            counts=("count", "sum"), ns=("sum_ns", "sum")
        )
        found["short_name"] = [short.get(name, name) for name in found.name]
        found["total_duration"] = found.ns / US
        found = found.rename(columns={"category": "cat"})
        return found[["cat", "name", "short_name", "counts", "total_duration"]]


Side = LabeledTrace | TraceAnalysis | str | Path


def labeled(trace: Side, label: str) -> LabeledTrace:
    """A trace as `compare_traces` takes it."""
    if isinstance(trace, LabeledTrace):
        return trace
    if isinstance(trace, TraceAnalysis):
        return LabeledTrace(label, t=trace)
    return LabeledTrace(label, trace_dir=trace)


class TraceDiff:
    """What two traces have in other numbers: operators and kernels by name."""

    figures = figures.Figures()

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
        """By name `L_counts, L_total_duration` (µs) of both labels, their differences, and `+`, `-` or `=`.

        By default the first rank and the first step of each. Of several ranks or steps everything is per rank
        and step: sums over those that were asked for, divided by how many they are.
        """
        one, other = labeled(control, "Control"), labeled(test, "Test")
        if one.label == other.label:
            raise ParamError(
                f"both traces are called {one.label}", "give each a label: LabeledTrace(label=…)"
            )
        key = "short_name" if use_short_name else "name"
        before = cls._summary(one, control_rank, control_iteration, device_type, key)
        after = cls._summary(other, test_rank, test_iteration, device_type, key)
        found = before.add_prefix(f"{one.label}_").join(after.add_prefix(f"{other.label}_"), how="outer")
        return cls._with_differences(found.fillna(0), one.label, other.label)

    @staticmethod
    def _summary(
        trace: LabeledTrace,
        rank: int | list[int] | None,
        iteration: int | list[int] | None,
        device_type: DeviceType,
        key: str,
    ) -> Any:
        ranks = len(rank) if isinstance(rank, list) and rank else 1
        steps = len(iteration) if isinstance(iteration, list) and iteration else 1
        ops = trace.get_ops_summary(trace.extract_ops(rank, iteration, device_type))
        return ops.groupby(key)[["counts", "total_duration"]].sum() / (ranks * steps)

    @staticmethod
    def _with_differences(found: Any, control: str, test: str) -> Any:
        found["diff_counts"] = found[f"{test}_counts"] - found[f"{control}_counts"]
        found["diff_duration"] = found[f"{test}_total_duration"] - found[f"{control}_total_duration"]
        found["counts_change_categories"] = [
            "+" if each > 0 else "-" if each < 0 else "=" for each in found["diff_counts"]
        ]
        return found

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
        """Names that were added, deleted, increased, decreased or unchanged, by how often they ran."""
        one, other = labeled(control, "Control"), labeled(test, "Test")
        ranks, steps = (control_rank, test_rank), (control_iteration, test_iteration)
        frame = cls.compare_traces(one, other, *ranks, *steps, device_type)
        before, after = frame[f"{one.label}_counts"], frame[f"{other.label}_counts"]
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
        """How often, side by side; into a file (HTML, image) where one is named."""
        cls._draw(df, "counts", "diff_counts", "Ops Count Comparison", show_image, export_image_path)

    @classmethod
    def visualize_duration_diff(
        cls, df: Any, show_image: bool = True, export_image_path: str | Path | None = None
    ) -> None:
        """How long, side by side; into a file (HTML, image) where one is named."""
        title = "Ops Duration Comparison"
        cls._draw(df, "total_duration", "diff_duration", title, show_image, export_image_path)

    @classmethod
    def _draw(
        cls, df: Any, what: str, difference: str, title: str, show: bool, path: str | Path | None
    ) -> None:
        ends = f"_{what}"
        found = [name for name in df.columns if name.endswith(ends) and name != difference]
        columns = {name.removesuffix(ends): name for name in found}
        if len(columns) != 2 or difference not in df.columns:
            raise ParamError("this frame is not of compare_traces", "df = TraceDiff.compare_traces(…)")
        unit = "µs" if what == "total_duration" else ""
        figure = figures.sides(df, {**columns, "Difference": difference}, title, unit)
        if show:
            cls.figures.show(figure)
        if path is not None:
            figures.save(figure, Path(path))
