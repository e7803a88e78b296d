"""A report as a document: sections of text, charts, tables and findings, and the HTML page made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from tracewarehouse.display_names import category_name
from tracewarehouse.present.pages import render_page
from tracewarehouse.present.plot import svg
from tracewarehouse.present.plot.theme import Spec
from tracewarehouse.present.render.names import short_names
from tracewarehouse.result import Field


@dataclass(frozen=True)
class Figure:
    """A chart with a caption."""

    title: str
    spec: Spec


@dataclass(frozen=True)
class Table:
    """The first rows of a relation; `total` is its row count, `command` prints all of it in a terminal."""

    name: str
    caption: str
    fields: tuple[Field, ...]
    docs: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    total: int
    command: str
    notes: tuple[str, ...] = ()

    @property
    def short_names(self) -> tuple[Mapping[str, str], ...]:
        """For each column, the short name of each text in it, as in tables of a terminal."""
        columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.fields)
        return tuple(short_names(each for each in column if isinstance(each, str)) for column in columns)


@dataclass(frozen=True)
class Card:
    """A title, a sentence and the charts that show it."""

    title: str
    text: str
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command that a reader can copy, and what it shows."""

    text: str
    shows: str


@dataclass(frozen=True)
class Finding:
    """A finding with its ranks, estimated saving and advice; the commands show its evidence."""

    severity: str
    title: str
    observation: str
    saving: str
    advice: str
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class TimelineView:
    """A timeline: its data as JSON text, and the text for readers without a picture."""

    data: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class FlameView:
    """A flame view: its data as JSON text, what it shows, and the command that prints its rows."""

    data: str
    label: str
    command: str


@dataclass(frozen=True)
class Share:
    """A part of a whole, drawn as a segment of a stacked bar."""

    category: str
    share: float
    description: str


@dataclass(frozen=True)
class MetricValue:
    """A metric of a run, as text and as the number that sorts; None if it is unknown, for the `note`."""

    metric: str
    text: str
    value: float | None
    note: str = ""


@dataclass(frozen=True)
class RunRow:
    """A run in a table of runs; `width` is its time as a share of the longest, `link` its page.

    `time_of` is what takes the time, if it is not the same as in most rows.
    All rows of a table have the same metrics.
    """

    name: str
    labels: tuple[str, ...]
    ranks: int
    time: str
    time_ns: float | None
    change: str
    width: float
    steps: tuple[float, ...]
    shares: tuple[Share, ...]
    severity: str
    finding: str
    command: str
    metrics: tuple[MetricValue, ...] = ()
    link: str = ""
    time_of: str = ""


@dataclass(frozen=True)
class TreeNode:
    """A node of a collapsible tree; `total` and `own` are shares of everything, drawn as bars."""

    name: str
    text: str
    total: float
    own: float
    note: str = ""
    children: tuple[TreeNode, ...] = ()
    is_open: bool = False


@dataclass(frozen=True)
class Section:
    """A section of the page: a summary, then findings or a list of statements, cards, and tables."""

    key: str
    title: str
    summary: str
    cards: tuple[Card, ...] = ()
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()
    statements: tuple[str, ...] = ()
    timelines: tuple[TimelineView, ...] = ()
    runs: tuple[RunRow, ...] = ()
    trees: tuple[TreeNode, ...] = ()
    flames: tuple[FlameView, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A key number at the top of the page, linked to the section with its details.

    `share` draws a bar from 0 to 100 %; `steps` draws a small bar per step, as shares of the largest one.
    """

    name: str
    value: str
    note: str = ""
    section: str = ""
    category: str = "plain"
    share: float | None = None
    steps: tuple[float, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The answer of the page: one sentence, its price, what to try, and commands that lead to the evidence.

    `severity` is empty if there is no finding; `others` are further findings, each (severity, text).
    """

    sentence: str
    severity: str = ""
    price: str = ""
    advice: str = ""
    commands: tuple[Command, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    rest: str = ""
    word: str = ""  # printed instead of the severity


@dataclass(frozen=True)
class Page:
    """A report; `name` is its default file name without the suffix, `subtitle` one line below the title."""

    name: str
    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    verdict: Verdict
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    footer: str
    legend: tuple[str, ...]  # the categories whose colors the page uses

    def linked(self, folder: Path) -> Page:
        """The page with links from its runs to their pages in a folder, as far as these exist."""

        def with_link(row: RunRow) -> RunRow:
            exists = (folder / f"{row.name}.html").is_file()
            return replace(row, link=quote(f"{row.name}.html")) if exists else row

        return replace(
            self,
            sections=tuple(replace(each, runs=tuple(map(with_link, each.runs))) for each in self.sections),
        )

    def html(self) -> Iterator[str]:
        """The page as one HTML file, in chunks. Raises TwError if the extra `plot` is not installed."""
        legend = [(key, category_name(key)) for key in self.legend]
        return render_page("report.html", page=self, legend=legend, draw=svg)
