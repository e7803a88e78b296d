"""What a report holds before it is a page: sections of sentences, pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracewarehouse.plot.theme import Spec
from tracewarehouse.result import Field


@dataclass(frozen=True)
class Picture:
    """A picture with a heading that says what is shown."""

    title: str
    spec: Spec


@dataclass(frozen=True)
class Table:
    """Rows of a relation; `total` is how many there are, `command` shows them all on a terminal."""

    name: str
    caption: str
    fields: tuple[Field, ...]
    docs: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    total: int
    command: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A sentence about one thing, with its pictures."""

    title: str
    sentence: str
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Finding:
    """What looks wrong, in which ranks, what it could save and what to try; `look` is a command."""

    severity: str
    title: str
    seen: str
    saving: str
    advice: str
    look: str


@dataclass(frozen=True)
class Section:
    """A part of the page: a sentence on the whole of it, then parts, then tables."""

    key: str
    title: str
    sentence: str
    parts: tuple[Part, ...] = ()
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A number to see first."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class PageContent:
    """The content of a whole report; `name` is what its file is called by default, without ending."""

    name: str
    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    tiles: tuple[Tile, ...]
    unknown: tuple[str, ...]  # what the page cannot know
    sections: tuple[Section, ...]
    made: str
    meanings: tuple[str, ...]  # whose colours it shows
