"""Ranks of a run as one JSON text: as they were, or a part of them, with what is drawn over them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from tracewarehouse import engine
from tracewarehouse.catalog import Catalog
from tracewarehouse.export import part
from tracewarehouse.export.added import added_texts
from tracewarehouse.export.choice import Additions
from tracewarehouse.export.found import Rows
from tracewarehouse.export.place import Place
from tracewarehouse.export.texts import event_texts, header_members, timeline_texts
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.session import session

_OURS = "tracewarehouse"  # the key of the header that says what a part is


@dataclass(frozen=True)
class Traced:
    """A rank to write: where its events stand, what is drawn over them, and what was found in the run."""

    rank: int
    place: Place
    more: Additions
    found: Rows = ()


@dataclass(frozen=True)
class Source:
    """Where ranks are read from."""

    root: Path
    catalog: Catalog
    chosen: Chosen


def whole_text(source: Source, traced: Traced) -> Iterator[str]:
    """A rank's trace in pieces: the keys of its header, then the list of its events, then those added."""
    chosen, rank, more = source.chosen, traced.rank, traced.more
    with session(source.root, source.catalog, [chosen], more.contracts) as con:
        more.create(con, traced.found)
        part.no_part(con)
        names, rest = added_texts(con, chosen.run, rank, more.added, traced.place)
        members = header_members(_header(con))
        own = chain(event_texts(con, chosen.run, rank), timeline_texts(con, chosen.run, rank))
        yield from _document(members, chain(own, names, rest))


def part_text(source: Source, ranks: Sequence[Traced], told: Mapping[str, Any]) -> Iterator[str]:
    """A part of one rank, or ranks side by side: of each what names its tracks, its events, what is added.

    `told` goes into the header under a key of our own; of several ranks their own headers are left out.
    """
    first = replace(source.chosen, ranks=(ranks[0].rank,))
    with session(source.root, source.catalog, [first], [source.catalog.get("ranks")]) as con:
        members = header_members(_header(con), _OURS) if len(ranks) == 1 else _shared_header(con)
    ours = f'"{_OURS}": {json.dumps(told, ensure_ascii=False)}'
    yield from _document(f"{members}, {ours}" if members else ours, _side_by_side(source, ranks))


def _side_by_side(source: Source, ranks: Sequence[Traced]) -> Iterator[str]:
    first_pid = 0
    for each in ranks:
        alone = replace(source.chosen, ranks=(each.rank,))
        with session(source.root, source.catalog, [alone], each.more.contracts) as con:
            each.more.create(con, each.found)
            part.prepare(con, replace(each.place, first_pid=first_pid))
            first_pid += part.process_count(con)
            yield from _rank_texts(con, source.chosen.run, each)


def _rank_texts(con: engine.Connection, run: str, traced: Traced) -> Iterator[str]:
    names, rest = added_texts(con, run, traced.rank, traced.more.added, traced.place)
    yield from part.process_names(con, traced.rank)
    yield from event_texts(con, run, traced.rank, part.NAMES)
    yield from names
    yield from event_texts(con, run, traced.rank, part.EVENTS)
    yield from rest


def _shared_header(con: engine.Connection) -> str:
    (base_time_ns,) = con.execute("SELECT base_time_ns FROM ranks").fetchone() or (None,)
    members = {"schemaVersion": 1, "displayTimeUnit": "ms"}
    if base_time_ns:
        members["baseTimeNanoseconds"] = base_time_ns
    return json.dumps(members)[1:-1]


def _header(con: engine.Connection) -> str:
    (header,) = con.execute("SELECT header FROM ranks").fetchone() or ("{}",)
    return header or "{}"


def _document(members: str, texts: Iterator[str]) -> Iterator[str]:
    yield "{" + (f"{members},\n" if members else "") + '"traceEvents": ['
    before = "\n"
    for text in texts:
        yield before + text
        before = ",\n"
    yield "\n]}\n"
