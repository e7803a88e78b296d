"""Colours by meaning: the same part of the time has the same colour in every picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]
FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"  # what widths of text are measured with

# Meaning: colour on a light and on a dark page. Hues keep apart for colour-blind eyes, idle time that nobody
# can act on is grey, and neighbours in a stack differ in lightness.
COLOURS: Mapping[str, tuple[str, str]] = {
    "compute": ("#2c6fb5", "#6caef0"),
    "exposed_comm": ("#e2920f", "#f2b64a"),
    "hidden_comm": ("#9dbcdc", "#3f6791"),
    "comm_wait": ("#f5d59a", "#7d6230"),
    "exposed_memory": ("#0c9276", "#3ccaa5"),
    "other": ("#79c4e6", "#b4e0f5"),
    "idle_host": ("#c9472c", "#f0806a"),
    "idle_dataloader": ("#8b2c68", "#d27ab2"),
    "idle_sync": ("#dd94c4", "#f0bbdf"),
    "idle_kernel_wait": ("#a3a9b0", "#878d95"),
    "idle_other": ("#70767d", "#b9bfc6"),
    "idle_unknown": ("#c5cad0", "#646a72"),
    "idle_outside": ("#dfe3e7", "#434951"),
    "idle": ("#a3a9b0", "#878d95"),
    "longer": ("#b3123f", "#ff86a3"),
    "shorter": ("#157f8c", "#5fcbd8"),
    "base": ("#929ba8", "#7f8a99"),
    "head": ("#3f4c5d", "#dbe3ec"),
    "plain": ("#53647a", "#a9b8cb"),
}
INK: Mapping[str, tuple[str, str]] = {
    "ink": ("#1b2530", "#e8edf2"),
    "soft": ("#5b6673", "#a3aeba"),
    "line": ("#d9dee4", "#36404b"),
    "paper": ("#ffffff", "#151b22"),
}
# Other words of our analyses for the same meanings.
_SAME = {
    "computation": "compute",
    "communication": "exposed_comm",
    "memory": "exposed_memory",
    "compute_ns": "compute",
    "exposed_comm_ns": "exposed_comm",
    "exposed_memory_ns": "exposed_memory",
    "other_ns": "other",
    "idle_ns": "idle",
    "host_wait": "idle_host",
    "kernel_wait": "idle_kernel_wait",
    "unknown": "idle_unknown",
    "before_first": "idle_outside",
    "after_last": "idle_outside",
    "overlap_ns": "hidden_comm",
    "exposed_ns": "exposed_comm",
}


def meaning(word: str) -> str:
    """What a part, kind or cause is coloured as; `plain` where it has no colour of its own."""
    found = _SAME.get(word, word)
    return found if found in COLOURS else "plain"


@dataclass(frozen=True)
class Theme:
    """How colours are written: by value, or as variables of the page that the picture stands in."""

    variables: bool

    def colour(self, name: str) -> str:
        """The colour of a meaning, or of ink, soft, line, paper."""
        if self.variables:
            return f"var(--{name})"
        return {**COLOURS, **INK}[name][0]

    def config(self) -> Spec:
        """Vega's settings: quiet axes, no frame, text in the page's ink."""
        ink, soft, line = (self.colour(name) for name in ("ink", "soft", "line"))
        return {
            "background": None if self.variables else self.colour("paper"),
            "font": FONT,
            "view": {"stroke": None},
            "padding": 2,
            "text": {"color": ink, "fontSize": 12},
            "axis": {
                "labelColor": soft,
                "titleColor": soft,
                "gridColor": line,
                "domainColor": line,
                "tickColor": line,
                "labelFontSize": 11,
                "titleFontSize": 11,
                "titleFontWeight": "normal",
            },
            "legend": {"labelColor": ink, "titleColor": soft, "orient": "top", "columns": 3},
            "title": {"color": ink, "subtitleColor": soft, "anchor": "start", "fontSize": 14},
        }


PAGE = Theme(variables=True)
PLAIN = Theme(variables=False)


def css() -> str:
    """The variables of a page, for light and dark."""
    light, dark = (
        "".join(f"--{name}:{pair[at]};" for name, pair in {**INK, **COLOURS}.items()) for at in (0, 1)
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root:root{{color-scheme:light;{light}}}}}\n"
    )


_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (1024, "KiB"), (1024**2, "MiB"), (1024**3, "GiB"), (1024**4, "TiB")),
    "ratio": ((0.01, "%"),),
    "bytes_per_ns": ((1, "GB/s"),),
}
_ALIKE = {"ts": "ns"}


@dataclass(frozen=True)
class Scale:
    """A unit for all values of a picture: value / `by` is so many `name`."""

    by: float
    name: str

    @classmethod
    def of(cls, values: Iterable[float], unit: str | None) -> Scale:
        """The largest unit in which the largest value is at least 1."""
        steps = _STEPS.get(_ALIKE.get(unit or "", unit or ""), ((1.0, ""),))
        top = max((abs(value) for value in values), default=0.0)
        by, name = next((step for step in reversed(steps) if top >= step[0]), steps[0])
        return cls(by, name)

    def title(self, what: str) -> str:
        """`step time, ms`."""
        return f"{what}, {self.name}" if self.name else what


def brief(value: float, unit: str | None = None) -> str:
    """A value in three digits, `12.3 ms`; a count in full."""
    if unit not in _STEPS and _ALIKE.get(unit or "") is None:
        return f"{value:,}" if isinstance(value, int) else _digits(value)
    scale = Scale.of([value], unit)
    if scale.by > 1 and round(abs(value) / scale.by) >= 1000 and unit == "ns" and scale.name != "s":
        scale = Scale.of([value * 1.001], unit)
    text = _digits(value / scale.by)
    return f"{text} {scale.name}"


def _digits(value: float) -> str:
    """Three digits that count, thousands apart, no zeros at the end of a whole number."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.095 else f"{value:.2g}"
