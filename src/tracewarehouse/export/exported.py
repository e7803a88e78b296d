"""An export: what was asked for becomes a text, and what must be told about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.export import clocks
from tracewarehouse.export.asked import Asked
from tracewarehouse.export.choice import Additions, additions, suited
from tracewarehouse.export.cut import windows
from tracewarehouse.export.found import Rows
from tracewarehouse.export.place import Place, Window
from tracewarehouse.export.states import cut_mark
from tracewarehouse.export.trace import Source, Traced, part_text, whole_text
from tracewarehouse.select.chosen import Chosen, spans
from tracewarehouse.select.facts import built_rows


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
    root: Path, catalog: Catalog, run: Chosen, ranks: Sequence[int], asked: Asked, found: Rows = ()
) -> Exported:
    """One rank, or several side by side; of a run that has all ranks which may tell how clocks are apart.

    `found` are findings of these ranks, the gravest first. Raises ParamError, UnknownName.
    """
    source = Source(root, catalog, replace(run, ranks=tuple(ranks)))
    wanted = additions(catalog, asked.counters or (), asked.overlays or ())
    wanted.check_needs([source.chosen])
    if len(ranks) == 1 and not asked.is_cut:
        traced = Traced(ranks[0], Place(), wanted, found)
        return Exported(whole_text(source, traced), tuple(ranks), bool(wanted.added))
    return _part(source, run, asked, wanted, found)


def _part(source: Source, run: Chosen, asked: Asked, wanted: Additions, found: Rows) -> Exported:
    root, catalog, chosen = source.root, source.catalog, source.chosen
    rows = built_rows(root, catalog.get("ranks", kind="table"), [chosen])
    facts = {row["rank"]: row for row in rows}
    known = clocks.clocks(root, catalog, run, chosen.ranks)
    cuts = windows(root, catalog, chosen, asked, facts, known, found) if asked.is_cut else {}
    places = _places(facts, known, cuts)
    drawn, lacking = {}, defaultdict[str, list[int]](list)
    for rank, place in places.items():
        drawn[rank], reasons = _drawn(catalog, replace(chosen, ranks=(rank,)), asked, wanted, place)
        for reason in reasons:
            lacking[reason].append(rank)
    told = [*clocks.notes(known), *(f"rank {spans(of)}: {reason}" for reason, of in lacking.items())]
    traced = [Traced(rank, place, drawn[rank], found) for rank, place in places.items()]
    about = _about(chosen, asked, known, cuts, told)
    return Exported(part_text(source, traced, about), chosen.ranks, True, tuple(told))


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
    catalog: Catalog, chosen: Chosen, asked: Asked, wanted: Additions, place: Place
) -> tuple[Additions, tuple[str, ...]]:
    if asked.plain:
        return wanted, ()
    usual, told = suited(catalog, [chosen], asked.counters is None, asked.overlays is None)
    marks = [cut_mark(_label(asked), place.window)] if place.window else []
    return wanted.with_more(catalog, (*usual.added, *marks)), told


def _label(asked: Asked) -> str:
    if asked.step is not None:
        return f"step {asked.step}"
    return "cut" if asked.around is None else f"around {asked.around}"


def _about(
    chosen: Chosen,
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
    what = _label(asked) if asked.is_cut else "whole"
    return {"run": chosen.selector, "part": what, "ranks": ranks, "notes": list(told)}
