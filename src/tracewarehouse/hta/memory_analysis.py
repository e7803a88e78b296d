"""`MemoryAnalysis` of a raw memory timeline, as `export_memory_timeline_raw` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracewarehouse.hta.figures import Figures, library, save
from tracewarehouse.hta.traces import opened

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
    """The memory in use over time, by what it was used for. Figures are kept in `figures.last`."""

    def __init__(self, path: str | Path) -> None:
        self.opened = opened([path], None, None)
        self.figures = Figures()

    def timeline(self) -> Any:
        """`time_ms` from the first change on, and a column of bytes for each of HTA's categories."""
        frame = self.opened.frame("memory_category_curve").sort_values("position")
        first = frame.ts_ns.min()
        found = {"time_ms": (frame.ts_ns.fillna(first) - first).astype(float) / 1e6}
        found |= {name: frame[f"{column}_bytes"] for column, name in CATEGORIES.items()}
        return library("pandas").DataFrame(found).reset_index(drop=True)

    def plot_memory_timeline(self, save_graph: bool | str | Path = False) -> None:
        """A stacked figure in GiB; with a path it is written there (HTML or image), with True as
        `images/memory_plot.html` in the working folder, and not shown."""
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
