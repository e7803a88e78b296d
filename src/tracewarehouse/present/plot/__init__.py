"""Charts: Vega-Lite specifications built from plain rows, drawn as SVG or as Altair charts."""

from tracewarehouse.present.plot.draw import chart, check_installed, svg
from tracewarehouse.present.plot.theme import PAGE, PLAIN, Theme

__all__ = ["PAGE", "PLAIN", "Theme", "chart", "check_installed", "svg"]
