"""What all charts share: colors per category, Vega settings and parts, units, three-digit numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracewarehouse.display_names import category
from tracewarehouse.errors import TwError
from tracewarehouse.exact_text import one_line
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    import altair


Spec = dict[str, Any]
FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"  # the fonts that vl-convert measures text with

# Category: color on a light and on a dark page. Hues are distinguishable for color-blind readers, idle time
# without a remedy is gray, and neighbors in a stack differ in lightness.
COLORS: Mapping[str, tuple[str, str]] = {
    "compute": ("#2c6fb5", "#6caef0"),
    "exposed_comm": ("#e2920f", "#f2b64a"),
    "exposed_wait": ("#fbe0a8", "#94763a"),
    "exposed_transfer": ("#c87a05", "#ffc861"),
    "exposed_unassigned": ("#eeb04e", "#c78f35"),
    "hidden_comm": ("#9dbcdc", "#3f6791"),
    "comm_wait": ("#f5d59a", "#7d6230"),
    "exposed_memory": ("#0c9276", "#3ccaa5"),
    "other": ("#79c4e6", "#b4e0f5"),
    "idle_host": ("#c9472c", "#f0806a"),
    "idle_dataloader": ("#8b2c68", "#d27ab2"),
    "idle_sync": ("#dd94c4", "#f0bbdf"),
    "idle_call": ("#e8a48f", "#a8574a"),
    "idle_latency": ("#a3a9b0", "#878d95"),
    "idle_queued": ("#70767d", "#b9bfc6"),
    "idle_graph": ("#8a8fb0", "#9aa0c8"),
    "idle_unknown": ("#c5cad0", "#646a72"),
    "idle_outside": ("#dfe3e7", "#434951"),
    "idle": ("#a3a9b0", "#878d95"),
    "longer": ("#b3123f", "#ff86a3"),
    "shorter": ("#157f8c", "#5fcbd8"),
    "base": ("#929ba8", "#7f8a99"),
    "head": ("#3f4c5d", "#dbe3ec"),
    "plain": ("#53647a", "#a9b8cb"),
}
PAGE_COLORS: Mapping[str, tuple[str, str]] = {
    "ink": ("#1b2530", "#e8edf2"),
    "soft": ("#5b6673", "#a3aeba"),
    "line": ("#d9dee4", "#36404b"),
    "paper": ("#ffffff", "#151b22"),
}


def color_key(name: str) -> str:
    """The key in `COLORS` of a column, kernel kind or idle cause; `plain` if it has no color."""
    key = category(name)
    return key if key in COLORS else "plain"


class Theme(Struct, frozen=True):
    """How colors are written: as values, or as CSS variables of the page that contains the chart."""

    variables: bool

    def color(self, name: str) -> str:
        """The color of a category, or of ink, soft, line, paper."""
        if self.variables:
            return f"var(--{name})"
        return {**COLORS, **PAGE_COLORS}[name][0]

    def config(self) -> Spec:
        """Vega settings: quiet axes, no frame, text in the page's ink."""
        ink, soft, line = (self.color(name) for name in ("ink", "soft", "line"))
        return {
            "background": None if self.variables else self.color("paper"),
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


DESCRIPTION: Spec = {"field": "description"}  # the tooltip and ARIA label of a mark
OWN_COLOR: Spec = {"field": "color", "type": "nominal", "scale": None}


def frame(values: Sequence[Spec], width: int, height: int | Spec) -> Spec:
    """The data and size of a chart that includes its axes in `width`."""
    fit = {"type": "fit-x", "contains": "padding"}
    return {"width": width, "height": height, "autosize": fit, "data": {"values": list(values)}}


def number(field: str | None = None, **options: object) -> Spec:
    """A quantitative channel of a field."""
    return {**({"field": field} if field else {}), "type": "quantitative", **options}


def layer(type_: str, encoding: Spec, values: Sequence[Spec] | None = None, **mark: object) -> Spec:
    """A layer of a chart: marks of this type, of the given values or those of the chart."""
    data = {} if values is None else {"data": {"values": list(values)}}
    return {**data, "mark": {"type": type_, **mark}, "encoding": encoding}


def css() -> str:
    """The CSS variables of a page, for light, dark and print."""
    light, dark = (
        "".join(f"--{name}:{pair[at]};" for name, pair in {**PAGE_COLORS, **COLORS}.items()) for at in (0, 1)
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root:root{{color-scheme:light;{light}}}}}\n"
    )


_UNIT_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "ts": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (1024, "KiB"), (1024**2, "MiB"), (1024**3, "GiB"), (1024**4, "TiB")),
    "ratio": ((0.01, "%"),),
    "bytes_per_ns": ((1, "GB/s"),),
}


class Scale(Struct, frozen=True):
    """One unit for all values of a chart: divide a value by `divisor` to get it in `unit`."""

    divisor: float
    unit: str

    @classmethod
    def of(cls, values: Iterable[float], unit: str | None) -> Scale:
        """The largest unit in which the largest value is at least 1."""
        steps = _UNIT_STEPS.get(unit or "", ((1.0, ""),))
        top = max((abs(value) for value in values), default=0.0)
        divisor, name = next((step for step in reversed(steps) if top >= step[0]), steps[0])
        return cls(divisor, name)

    def axis_title(self, quantity: str) -> str:
        """`step time (ms)`."""
        return f"{quantity} ({self.unit})" if self.unit else quantity


def format_short(value: float, unit: str | None = None) -> str:
    """A value in three significant digits, as `12.3 ms`; a count in full."""
    if unit not in _UNIT_STEPS:
        return f"{value:,}" if isinstance(value, int) else _three_digits(value)
    scale = Scale.of([value], unit)
    if scale.divisor > 1 and round(abs(value) / scale.divisor) >= 1000 and unit == "ns" and scale.unit != "s":
        scale = Scale.of([value * 1.001], unit)
    return f"{_three_digits(value / scale.divisor)} {scale.unit}"


def _three_digits(value: float) -> str:
    """Three significant digits with thousands separators; an integer has no decimals."""
    magnitude = abs(value)
    if magnitude >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}" if magnitude >= 0.095 else f"{value:.2g}"


_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_ROOT = late_regex(r"<svg [^>]*?width=\"([\d.]+)\" height=\"([\d.]+)\"[^>]*>")
_ID = late_regex(r"(id=\"|url\(#)(clip|gradient_)(\d+)")


def check_installed() -> None:
    """Raises TwError if a plotting library is not installed."""
    for module, library in (("altair", "altair"), ("vl_convert", "vl-convert-python")):
        try:
            is_installed = find_spec(module) is not None
        except ValueError:
            is_installed = False
        if not is_installed:
            raise _not_installed(library)


def chart(spec: Spec, theme: Theme = PLAIN) -> altair.TopLevelMixin:
    """The chart for a notebook. Raises TwError if Altair is not installed."""
    try:
        import altair
    except ImportError as error:
        raise _not_installed("altair") from error
    drawn: altair.TopLevelMixin = altair.Chart.from_dict(_complete(spec, theme))
    return drawn


def svg(spec: Spec, label: str, prefix: str) -> str:
    """The chart as an SVG element for a page whose CSS variables define its colors.

    `label` is its ARIA label; `prefix` makes the ids inside unique on the page. Raises TwError if
    vl-convert is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise _not_installed("vl-convert-python") from error
    text = vl_convert.vegalite_to_svg(_complete(spec, PAGE))
    root = _ROOT.match(text)
    assert root is not None, text[:200]
    width, height = root.groups()
    head = f'<svg viewBox="0 0 {width} {height}" role="group" aria-label="{escape(label)}">'
    return _ID.sub(rf"\g<1>{prefix}-\2\3", head + text[root.end() :])


def _complete(spec: Spec, theme: Theme) -> Spec:
    return {"$schema": _SCHEMA, **_visible(spec), "config": theme.config()}


def _visible(part: Any) -> Any:
    """The part of a specification with control and bidirectional characters escaped: some end the process."""
    if isinstance(part, str):
        return one_line(part)
    if isinstance(part, dict):
        return {_visible(key): _visible(value) for key, value in part.items()}
    return [_visible(each) for each in part] if isinstance(part, list | tuple) else part


def _not_installed(library: str) -> TwError:
    return TwError(f"{library} is not installed", "pip install 'tracewarehouse[plot]'")
