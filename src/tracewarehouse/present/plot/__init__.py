"""Charts: Vega-Lite specifications built from plain rows, drawn as SVG or as Altair charts."""
