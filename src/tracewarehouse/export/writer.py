"""An export: what was asked for becomes a text, and what must be told about it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine
from tracewarehouse.exact_text import rank_list
from tracewarehouse.export import clip, clocks
from tracewarehouse.export.event_text import event_texts, header_members, timeline_texts
from tracewarehouse.export.finding_markers import Rows
from tracewarehouse.export.overlay_events import Place, Window, added_texts
from tracewarehouse.export.overlays import cut_mark
from tracewarehouse.export.request import Additions, Asked, additions, suited
from tracewarehouse.export.time_range import windows
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.rows import built_rows
from tracewarehouse.runs.selection import SelectedRun


@dataclass(frozen=True)
class Exported:
    """The JSON text of a trace in pieces, to be read once; the ranks in it, and what people must be told.

    `is_new` says that it is no trace as it was read.
    """

    pieces: Iterator[str]
    ranks: tuple[int, ...]
    is_new: bool
    notices: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        return self.pieces


def contracts_read(catalog: Catalog, asked: Asked) -> tuple[Contract, ...]:
    """What an export may read, apart from analyses that were derived."""
    named = additions(catalog, asked.counters or (), asked.overlays or ()).contracts
    others = ("steps", "idle_intervals", "queue_length", clocks.READS)
    return tuple(dict.fromkeys((*named, *(catalog.get(name) for name in others))))


def export(
    root: Path, catalog: Catalog, run: SelectedRun, ranks: Sequence[int], asked: Asked, found: Rows = ()
) -> Exported:
    """One rank, or several side by side; of a run that has all ranks which may tell how clocks are apart.

    `found` are findings of these ranks, the gravest first. Raises ParamError, UnknownName.
    """
    source = Source(root, catalog, replace(run, ranks=tuple(ranks)))
    wanted = additions(catalog, asked.counters or (), asked.overlays or ())
    wanted.check_needs([source.selected])
    if len(ranks) == 1 and not asked.is_cut:
        traced = Traced(ranks[0], Place(), wanted, found)
        return Exported(whole_text(source, traced), tuple(ranks), bool(wanted.added))
    return _part(source, run, asked, wanted, found)


def _part(source: Source, run: SelectedRun, asked: Asked, wanted: Additions, found: Rows) -> Exported:
    root, catalog, selected = source.root, source.catalog, source.selected
    rows = built_rows(root, catalog.get("ranks", kind="table"), [selected])
    facts = {row["rank"]: row for row in rows}
    known = clocks.clocks(root, catalog, run, selected.ranks)
    cuts = windows(root, catalog, selected, asked, facts, known, found) if asked.is_cut else {}
    places = _places(facts, known, cuts)
    drawn, lacking = {}, defaultdict[str, list[int]](list)
    for rank, place in places.items():
        drawn[rank], reasons = _drawn(catalog, replace(selected, ranks=(rank,)), asked, wanted, place)
        for reason in reasons:
            lacking[reason].append(rank)
    told = [*clocks.notes(known), *(f"rank {rank_list(of)}: {reason}" for reason, of in lacking.items())]
    traced = [Traced(rank, place, drawn[rank], found) for rank, place in places.items()]
    about = _about(selected, asked, known, cuts, told)
    return Exported(part_text(source, traced, about), selected.ranks, True, tuple(told))


def _places(
    facts: Mapping[int, Mapping[str, Any]], known: Mapping[int, clocks.Clock], cuts: Mapping[int, Window]
) -> dict[int, Place]:
    """Times count from where those of the first rank's file do, by the clock that ranks are brought to."""
    bases = {rank: row["base_time_ns"] or 0 for rank, row in facts.items()}
    base = next(iter(bases.values()))
    alone = len(facts) == 1
    return {
        rank: Place(
            cuts.get(rank), 0 if alone else bases[rank] - base - known[rank].offset_ns, number, len(facts)
        )
        for number, rank in enumerate(facts)
    }


def _drawn(
    catalog: Catalog, selected: SelectedRun, asked: Asked, wanted: Additions, place: Place
) -> tuple[Additions, tuple[str, ...]]:
    if asked.plain:
        return wanted, ()
    usual, told = suited(catalog, [selected], asked.counters is None, asked.overlays is None)
    marks = [cut_mark(_label(asked), place.window)] if place.window else []
    return wanted.with_more(catalog, (*usual.added, *marks)), told


def _label(asked: Asked) -> str:
    if asked.step is not None:
        return f"step {asked.step}"
    return "cut" if asked.around is None else f"around {asked.around}"


def _about(
    selected: SelectedRun,
    asked: Asked,
    known: Mapping[int, clocks.Clock],
    cuts: Mapping[int, Window],
    told: Sequence[str],
) -> dict[str, Any]:
    """What the header says of a part; times as text, since a reader of JSON may keep 53 bits of a number."""
    ranks = []
    for rank, clock in known.items():
        row: dict[str, Any] = {"rank": rank, "clock_offset_ns": clock.offset_ns}
        if rank in cuts:
            row |= {"from_ns": str(cuts[rank][0]), "to_ns": str(cuts[rank][1])}
        ranks.append(row)
    what = _label(asked) if asked.is_cut else "entire trace"
    return {"run": selected.selector, "time_range": what, "ranks": ranks, "notes": list(told)}


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
    selected: SelectedRun


def whole_text(source: Source, traced: Traced) -> Iterator[str]:
    """A rank's trace in pieces: the keys of its header, then the list of its events, then those added."""
    selected, rank, more = source.selected, traced.rank, traced.more
    with connection(source.root, source.catalog, [selected], more.contracts) as con:
        more.create(con, traced.found)
        clip.no_part(con)
        names, rest = added_texts(con, selected.run, rank, more.added, traced.place)
        members = header_members(_header(con))
        own = chain(event_texts(con, selected.run, rank), timeline_texts(con, selected.run, rank))
        yield from _document(members, chain(own, names, rest))


def part_text(source: Source, ranks: Sequence[Traced], told: Mapping[str, Any]) -> Iterator[str]:
    """A part of one rank, or ranks side by side: of each what names its tracks, its events, what is added.

    `told` goes into the header under a key of our own; of several ranks their own headers are left out.
    """
    first = replace(source.selected, ranks=(ranks[0].rank,))
    with connection(source.root, source.catalog, [first], [source.catalog.get("ranks")]) as con:
        members = header_members(_header(con), _OURS) if len(ranks) == 1 else _shared_header(con)
    ours = f'"{_OURS}": {json.dumps(told, ensure_ascii=False)}'
    yield from _document(f"{members}, {ours}" if members else ours, _side_by_side(source, ranks))


def _side_by_side(source: Source, ranks: Sequence[Traced]) -> Iterator[str]:
    first_pid = 0
    for each in ranks:
        alone = replace(source.selected, ranks=(each.rank,))
        with connection(source.root, source.catalog, [alone], each.more.contracts) as con:
            each.more.create(con, each.found)
            clip.prepare(con, replace(each.place, first_pid=first_pid))
            first_pid += clip.process_count(con)
            yield from _rank_texts(con, source.selected.run, each)


def _rank_texts(con: engine.Connection, run: str, traced: Traced) -> Iterator[str]:
    names, rest = added_texts(con, run, traced.rank, traced.more.added, traced.place)
    yield from clip.process_names(con, traced.rank)
    yield from event_texts(con, run, traced.rank, clip.NAMES)
    yield from names
    yield from event_texts(con, run, traced.rank, clip.EVENTS)
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
