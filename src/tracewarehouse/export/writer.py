"""Writes an export: the JSON text of one rank's trace, or of several ranks or a time range, with notices."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine
from tracewarehouse.exact_text import rank_list
from tracewarehouse.export import clip, clocks
from tracewarehouse.export.event_text import event_texts, header_members, timeline_texts
from tracewarehouse.export.finding_markers import FindingRows
from tracewarehouse.export.overlay_events import RankLayout, TimeRange, addition_texts
from tracewarehouse.export.overlays import range_marker
from tracewarehouse.export.request import Additions, ExportRequest, additions, default_additions
from tracewarehouse.export.time_range import RankRows, time_ranges
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.rows import built_rows
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Versions

_HEADER_KEY = "tracewarehouse"  # describes a time range or several ranks


@dataclass(frozen=True)
class Exported:
    """The JSON text of a trace in chunks, to be read once, its ranks, and notices.

    `is_new` is False for an unchanged copy of a stored trace.
    """

    chunks: Iterator[str]
    ranks: tuple[int, ...]
    is_new: bool
    notices: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        return self.chunks


@dataclass(frozen=True)
class Source:
    """The ranks to export, and the store that has them."""

    store: Versions
    catalog: Catalog
    selected: SelectedRun


@dataclass(frozen=True)
class RankOutput:
    """A rank to write: how its events are written, what is added, and the findings of the run."""

    rank: int
    layout: RankLayout
    additions: Additions
    findings: FindingRows = ()


def contracts_read(catalog: Catalog, request: ExportRequest) -> tuple[Contract, ...]:
    """What an export may read, except for analyses of derived tables."""
    requested = additions(catalog, request.counters or (), request.overlays or ()).contracts
    others = ("steps", "idle_intervals", "queue_length", clocks.READS)
    return tuple(dict.fromkeys((*requested, *(catalog.get(name) for name in others))))


def export(
    store: Versions,
    catalog: Catalog,
    run: SelectedRun,
    ranks: Sequence[int],
    request: ExportRequest,
    findings: FindingRows = (),
) -> Exported:
    """One rank, or several together; `run` has all ranks that may help to align their clocks.

    `findings` are those of these ranks, the most severe first. Raises ParamError, UnknownName.
    """
    source = Source(store, catalog, replace(run, ranks=tuple(ranks)))
    requested = additions(catalog, request.counters or (), request.overlays or ())
    requested.check_needs([source.selected])
    if len(ranks) == 1 and not request.has_time_range:
        output = RankOutput(ranks[0], RankLayout(), requested, findings)
        return Exported(_entire_trace_text(source, output), tuple(ranks), bool(requested.items))
    return _clip(source, run, request, requested, findings)


def _clip(
    source: Source, run: SelectedRun, request: ExportRequest, requested: Additions, findings: FindingRows
) -> Exported:
    """A time range of one rank, or several ranks."""
    store, catalog, selected = source.store, source.catalog, source.selected
    rows = built_rows(store, catalog.get("ranks", kind="table"), [selected])
    ranks = {row["rank"]: row for row in rows}
    by_rank = clocks.clocks(store, catalog, run, selected.ranks)
    ranges: dict[int, TimeRange] = {}
    if request.has_time_range:
        ranges = time_ranges(store, catalog, selected, request, ranks, by_rank, findings)
    outputs, not_drawn = [], defaultdict[str, list[int]](list)
    for rank, layout in _layouts(ranks, by_rank, ranges).items():
        of_rank = replace(selected, ranks=(rank,))
        drawn, reasons = _additions_of_rank(catalog, of_rank, request, requested, layout)
        outputs.append(RankOutput(rank, layout, drawn, findings))
        for reason in reasons:
            not_drawn[reason].append(rank)
    lacking = (f"rank {rank_list(without)}: {reason}" for reason, without in not_drawn.items())
    notices = (*clocks.clock_notices(by_rank), *lacking)
    header = _header_entry(selected, request, by_rank, ranges, notices)
    return Exported(_clip_text(source, outputs, header), selected.ranks, True, notices)


def _layouts(
    ranks: RankRows, clocks: Mapping[int, clocks.Clock], ranges: Mapping[int, TimeRange]
) -> dict[int, RankLayout]:
    """Times are relative to the base time of the first rank's file, by the reference clock."""
    base_times = {rank: row["base_time_ns"] or 0 for rank, row in ranks.items()}
    first_ns, is_single = next(iter(base_times.values())), len(ranks) == 1
    return {
        rank: RankLayout(
            ranges.get(rank),
            0 if is_single else base_times[rank] - first_ns - clocks[rank].offset_ns,
            index,
            len(ranks),
        )
        for index, rank in enumerate(ranks)
    }


def _additions_of_rank(
    catalog: Catalog, selected: SelectedRun, request: ExportRequest, requested: Additions, layout: RankLayout
) -> tuple[Additions, tuple[str, ...]]:
    """The requested and default additions of a rank, and why defaults are not drawn."""
    if request.plain:
        return requested, ()
    defaults, reasons = default_additions(
        catalog, [selected], request.counters is None, request.overlays is None
    )
    markers = [range_marker(_range_name(request), layout.time_range)] if layout.time_range else []
    return requested.extended(catalog, (*defaults.items, *markers)), reasons


def _range_name(request: ExportRequest) -> str:
    if request.step is not None:
        return f"step {request.step}"
    return "cut" if request.around is None else f"around {request.around}"


def _header_entry(
    selected: SelectedRun,
    request: ExportRequest,
    clocks: Mapping[int, clocks.Clock],
    ranges: Mapping[int, TimeRange],
    notices: Sequence[str],
) -> dict[str, Any]:
    """The header's description of a clip; times as text, since JSON readers may keep 53 bits of a number."""
    ranks = []
    for rank, clock in clocks.items():
        row: dict[str, Any] = {"rank": rank, "clock_offset_ns": clock.offset_ns}
        if rank in ranges:
            row |= {"from_ns": str(ranges[rank][0]), "to_ns": str(ranges[rank][1])}
        ranks.append(row)
    label = _range_name(request) if request.has_time_range else "entire trace"
    return {"run": selected.selector, "time_range": label, "ranks": ranks, "notes": list(notices)}


def _entire_trace_text(source: Source, output: RankOutput) -> Iterator[str]:
    """A rank's trace in chunks: the keys of its header, the list of its events, then the added ones."""
    run, rank, additions = source.selected.run, output.rank, output.additions
    with connection(source.store, source.catalog, [source.selected], additions.contracts) as con:
        additions.create(con, output.findings)
        clip.prepare_entire_trace(con)
        names, added = addition_texts(con, run, rank, additions.items, output.layout)
        members = header_members(_header(con))
        own = chain(event_texts(con, run, rank), timeline_texts(con, run, rank))
        yield from _document(members, chain(own, names, added))


def _clip_text(source: Source, ranks: Sequence[RankOutput], entry: Mapping[str, Any]) -> Iterator[str]:
    """A time range of one rank, or several ranks: for each its track names, its events, and the added ones.

    `entry` is added to the header; with several ranks their own headers are left out.
    """
    first = replace(source.selected, ranks=(ranks[0].rank,))
    with connection(source.store, source.catalog, [first], [source.catalog.get("ranks")]) as con:
        members = header_members(_header(con), _HEADER_KEY) if len(ranks) == 1 else _shared_header(con)
    member = f'"{_HEADER_KEY}": {json.dumps(entry, ensure_ascii=False)}'
    yield from _document(f"{members}, {member}" if members else member, _all_ranks(source, ranks))


def _all_ranks(source: Source, ranks: Sequence[RankOutput]) -> Iterator[str]:
    first_pid = 0
    for each in ranks:
        of_rank = replace(source.selected, ranks=(each.rank,))
        with connection(source.store, source.catalog, [of_rank], each.additions.contracts) as con:
            each.additions.create(con, each.findings)
            clip.prepare(con, replace(each.layout, first_pid=first_pid))
            first_pid += clip.process_count(con)
            yield from _rank_texts(con, source.selected.run, each)


def _rank_texts(con: engine.Connection, run: str, output: RankOutput) -> Iterator[str]:
    names, added = addition_texts(con, run, output.rank, output.additions.items, output.layout)
    yield from clip.process_names(con, output.rank)
    yield from event_texts(con, run, output.rank, clip.NAMES)
    yield from names
    yield from event_texts(con, run, output.rank, clip.EVENTS)
    yield from added


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
    separator = "\n"
    for text in texts:
        yield separator + text
        separator = ",\n"
    yield "\n]}\n"
