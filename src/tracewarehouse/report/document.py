"""A report as a document: its content, written as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracewarehouse.report.content import PageContent
from tracewarehouse.report.page import html


@dataclass(frozen=True)
class Page(PageContent):
    """A report; `html` writes it."""

    def html(self) -> Iterator[str]:
        """The page as one HTML file, in chunks. Raises TwError if the extra `plot` is not installed."""
        return html(self)
