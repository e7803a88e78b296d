"""Figures of results with plotly: always stored, and shown if there is a renderer."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tracewarehouse.errors import TwError

PERCENT = ".2%"


class Figures:
    """The figures of the last call, in display order."""

    def __init__(self) -> None:
        self.last: list[Any] = []

    def show(self, *figures: Any, renderer: str | None = None) -> None:
        """Stores the figures, and shows each with plotly's default renderer or the given one.

        Without a browser or notebook, plotly has no default renderer, and nothing is shown.
        """
        self.last = list(figures)
        default = library("plotly.io").renderers.default
        if renderer or default:
            for figure in figures:
                figure.show(renderer=renderer or None)


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


EXTRA = ("pandas", "plotly")


def library(name: str) -> ModuleType:
    """The module of that name; raises TwError if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        wanted = "'tracewarehouse[hta]'" if root in EXTRA else root
        raise TwError(f"{root} is not installed", f"pip install {wanted}") from error
