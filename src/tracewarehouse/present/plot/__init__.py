"""Charts: Vega-Lite specifications built from plain rows, drawn as SVG or as Altair charts."""

from tracewarehouse.present.plot.theme import PAGE, PLAIN, Theme, chart, check_installed, svg

__all__ = ["PAGE", "PLAIN", "Theme", "chart", "check_installed", "svg"]
