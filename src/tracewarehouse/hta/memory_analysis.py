"""`MemoryAnalysis` of a memory timeline written by `export_memory_timeline_raw`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracewarehouse.hta.traces import Figures, library, load_traces, save

GIB = 1 << 30
CATEGORIES = {
    "parameter": "Parameter",
    "optimizer_state": "Optimizer state",
    "input": "Input",
    "temporary": "Temporary",
    "activation": "Activation",
    "gradient": "Gradient",
    "autograd_detail": "Autograd",
    "unknown": "Unknown",
}


class MemoryAnalysis:
    """Memory in use over time by category. Figures are stored in `figures.last`."""

    def __init__(self, path: str | Path) -> None:
        self.traces = load_traces([path], None, None)
        self.figures = Figures()

    def timeline(self) -> Any:
        """`time_ms` since the first change, and a column of bytes per category of HTA."""
        frame = self.traces.frame("memory_category_curve").sort_values("position")
        first_ns = frame.ts_ns.min()
        columns = {"time_ms": (frame.ts_ns.fillna(first_ns) - first_ns).astype(float) / 1e6}
        columns |= {name: frame[f"{column}_bytes"] for column, name in CATEGORIES.items()}
        return library("pandas").DataFrame(columns).reset_index(drop=True)

    def plot_memory_timeline(self, save_graph: bool | str | Path = False) -> None:
        """Shows a stacked chart in GiB, or writes it to a path (HTML or image).

        `save_graph=True` writes `images/memory_plot.html` in the working folder.
        """
        frame = self.timeline()
        go = library("plotly.graph_objects")
        figure = go.Figure()
        for name in CATEGORIES.values():
            figure.add_trace(
                go.Scatter(x=frame.time_ms, y=frame[name] / GIB, name=name, mode="lines", stackgroup="memory")
            )
        figure.update_layout(title_text="Memory timeline", xaxis_title="ms", yaxis_title="GiB")
        if not save_graph:
            self.figures.show(figure)
            return
        path = Path("images/memory_plot.html") if save_graph is True else Path(str(save_graph))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.figures.last = [figure]
        save(figure, path)
