"""Draws a Vega-Lite specification as SVG or as an Altair chart; only this module imports those libraries."""

from __future__ import annotations

import re
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tracewarehouse.errors import TwError
from tracewarehouse.exact_text import one_line
from tracewarehouse.present.plot.theme import PAGE, PLAIN, Spec, Theme

if TYPE_CHECKING:
    import altair

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_ROOT = re.compile(r"<svg [^>]*?width=\"([\d.]+)\" height=\"([\d.]+)\"[^>]*>")
_ID = re.compile(r"(id=\"|url\(#)(clip|gradient_)(\d+)")


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
