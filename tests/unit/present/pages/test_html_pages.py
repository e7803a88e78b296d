"""The templates of all HTML pages: escaping, missing names, and what a page can load."""

from __future__ import annotations

import jinja2
import pytest

from tracewarehouse.compare.history.history import HistoryPage, SeriesSection
from tracewarehouse.present.pages import render_page

HOSTILE = "<script>alert('1')</script>&\"x"


def history_page(text: str) -> HistoryPage:
    """A page with the same text in every field."""
    section = SeriesSection("series-1", text, None, ((text,) * 9,))
    return HistoryPage(text, text, ((text, text),), (section, section), (text,), text)


def test_all_text_is_escaped() -> None:
    html = "".join(render_page("history.html", page=history_page(HOSTILE)))
    assert (
        "<script" not in html
        and html.count("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&#34;x") > 20
    )


def test_a_missing_name_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="page"):
        "".join(render_page("history.html"))
    with pytest.raises(jinja2.UndefinedError, match="no attribute"):
        "".join(render_page("report.html", page=history_page("x")))


def test_a_page_cannot_load_anything() -> None:
    html = "".join(render_page("history.html", page=history_page("x")))
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">') and html.endswith("</html>\n")
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"" in html
    assert html.count('href="#series-1"') == 2 and '<a class="skip" href="#main">' in html


def test_chunks_are_buffered() -> None:
    chunks = list(render_page("history.html", page=history_page("x" * 1000)))
    assert 1 <= len(chunks) < 20
