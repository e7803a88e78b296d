"""HTML pages from Jinja2 templates: one look, all text escaped, no network requests without a click.

`base.html` is the frame of every page, `macros.html` its building blocks. A page is one file that
contains its styles and script; its content security policy forbids loading anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.present.plot.parts import css
from tracewarehouse.present.render.table import is_number
from tracewarehouse.present.render.text import for_terminal

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
def assets() -> Mapping[str, str]:
    """The styles and scripts of pages, by file name; `page.css` begins with the colors."""
    names = sorted(path.name for path in _TEMPLATES.iterdir() if path.suffix in (".css", ".js"))
    texts = {name: _environment().get_template(name).render() for name in names}
    return {**texts, "page.css": css() + texts["page.css"]}


def with_links(html: str, bar: str) -> str:
    """A page as a server sends it, below a bar: styles and scripts have addresses, the policy is a header.

    Raises ValueError for a style or script that is not one of the files.
    """
    html = _POLICY.sub("", html, count=1)
    html = html.replace(_HEADER, f"{bar}{_HEADER}", 1)
    html = _INLINE.sub(_links, html)
    return html.replace("</head>", f"{_LINK.format('served.css')}{_SCRIPT.format('served.js')}</head>", 1)


# Texts from traces have neither of these tags: all are escaped.
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n')
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)
_HEADER = '<header class="wrap">'
_LINK = '<link rel="stylesheet" href="/static/{}">\n'
_SCRIPT = '<script src="/static/{}" defer></script>\n'


def _links(inline: re.Match[str]) -> str:
    """Links to the files that are a style or script together, in their order."""
    text = inline[2]
    files = sorted((text.index(each), name) for name, each in assets().items() if each in text)
    if "".join(text.split()) != "".join("".join(assets()[name].split()) for _, name in files):
        raise ValueError(f"a page has a {inline[1]} that is not one of its files")
    return "".join((_LINK if inline[1] == "style" else _SCRIPT).format(name) for _, name in files)


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
