"""A specification as SVG or as an Altair chart: the only place that needs the plotting libraries."""

from __future__ import annotations

import re
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tracewarehouse.errors import TwError
from tracewarehouse.plot.theme import PAGE, PLAIN, Spec, Theme

if TYPE_CHECKING:
    import altair

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_ROOT = re.compile(r"<svg [^>]*?width=\"([\d.]+)\" height=\"([\d.]+)\"[^>]*>")
_ID = re.compile(r"(id=\"|url\(#)(clip|gradient_)(\d+)")


def check_installed() -> None:
    """Raises TwError where a plotting library is not installed."""
    for module, library in (("altair", "altair"), ("vl_convert", "vl-convert-python")):
        try:
            known = find_spec(module) is not None
        except ValueError:
            known = False
        if not known:
            raise _lacking(library)


def chart(spec: Spec, theme: Theme = PLAIN) -> altair.TopLevelMixin:
    """The chart for a notebook. Raises TwError where Altair is not installed."""
    try:
        import altair
    except ImportError as error:
        raise _lacking("altair") from error
    made: altair.TopLevelMixin = altair.Chart.from_dict(_whole(spec, theme))
    return made


def svg(spec: Spec, label: str, number: int) -> str:
    """The picture for a page whose variables give its colours; `label` says what it shows.

    `number` keeps its inner names apart from other pictures'. Raises TwError where vl-convert is not there.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise _lacking("vl-convert-python") from error
    text = vl_convert.vegalite_to_svg(_whole(spec, PAGE))
    root = _ROOT.match(text)
    assert root is not None, text[:200]
    width, height = root.groups()
    head = f'<svg viewBox="0 0 {width} {height}" role="group" aria-label="{escape(label)}">'
    return _ID.sub(rf"\g<1>p{number}\2\3", head + text[root.end() :])


def _whole(spec: Spec, theme: Theme) -> Spec:
    return {"$schema": _SCHEMA, **spec, "config": theme.config()}


def _lacking(library: str) -> TwError:
    return TwError(f"{library} is not installed", "pip install 'tracewarehouse[plot]'")
