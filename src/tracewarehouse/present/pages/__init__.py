"""HTML pages from Jinja2 templates: one look, all text escaped, no network requests without a click.

`base.html` is the frame of every page, `macros.html` its building blocks. A page is one file that
contains its styles and script; its content security policy forbids loading anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.present.plot.theme import css
from tracewarehouse.present.render.table import is_number
from tracewarehouse.present.render.text import for_terminal, show

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_BUFFERED = 100  # template fragments per chunk


def render_page(template: str, **context: object) -> Iterator[str]:
    """A page in chunks; a name that the context lacks raises an error."""
    stream = _environment().get_template(template).stream(context)
    stream.enable_buffering(_BUFFERED)
    return stream


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["show"] = show
    environment.filters["sort_key"] = _sort_key
    environment.tests["number_field"] = is_number
    environment.globals["theme_css"] = css
    return environment


def _visible(value: object) -> object:
    """Texts with control and bidirectional characters escaped; markup of our own as it is."""
    return for_terminal(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _sort_key(value: object) -> str:
    """The number that the script sorts a cell by; empty for null."""
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
