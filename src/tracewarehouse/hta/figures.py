"""Figures of results with plotly: always stored, and shown if there is a renderer."""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from tracewarehouse.errors import TwError

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
