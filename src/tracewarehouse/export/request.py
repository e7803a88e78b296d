"""What to export: validated options, clocks and time ranges of ranks, and additions with their contracts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Param, cast
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.duck import engine
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.exact_text import rank_list
from tracewarehouse.export.overlays import (
    COUNTERS,
    FINDINGS,
    OVERLAYS,
    Addition,
    FindingRows,
    TimeRange,
    create_findings_table,
    worst_occurrence,
)
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.readable import with_capabilities
from tracewarehouse.runs.selection import SelectedRun, as_list
from tracewarehouse.storage.versions import Versions

CLOCK_OFFSETS = "clock_offsets"
_OFFSETS = "SELECT rank, reference_rank, offset_ns, uncertainty_ns FROM clock_offsets"


class Clock(Struct, frozen=True):
    """A rank's clock: its times minus `offset_ns` are those of the reference rank.

    `uncertainty_ns` is None if the offset is estimated from one collective. Clocks with different reference
    ranks cannot be aligned.
    """

    offset_ns: int = 0
    uncertainty_ns: int | None = 0
    reference_rank: int | None = None


def rank_clocks(
    store: Versions, catalog: Catalog, run: SelectedRun, ranks: Sequence[int]
) -> dict[int, Clock]:
    """The clock of each of these ranks; `run` has all ranks whose collectives may connect them."""
    if len(ranks) == 1:
        return {ranks[0]: Clock()}
    with connection(store, catalog, [run], [catalog.get(CLOCK_OFFSETS)]) as con:
        rows = con.execute(_OFFSETS).fetchall()
    clocks = {rank: Clock(offset, uncertainty, reference) for rank, reference, offset, uncertainty in rows}
    return {rank: clocks[rank] for rank in ranks}


def clock_notices(clocks: Mapping[int, Clock]) -> list[str]:
    """Notices about the alignment of the clocks of several ranks."""
    ranks = list(clocks)
    if len(ranks) == 1:
        return []
    reference = clocks[ranks[0]].reference_rank
    aligned = [rank for rank in ranks if clocks[rank].reference_rank == reference]
    unaligned = [rank for rank in ranks if rank not in aligned]
    notices = []
    if len(aligned) > 1:
        uncertainties = [ns for rank in aligned if (ns := clocks[rank].uncertainty_ns) is not None]
        notices.append(
            f"clocks of ranks {rank_list(aligned)} are aligned to rank {reference}, "
            f"within {max(uncertainties) / 1_000:g} µs"
        )
    single = [rank for rank in aligned if clocks[rank].uncertainty_ns is None]
    if single:
        notices.append(f"rank {rank_list(single)}: clock offset estimated from a single collective")
    if unaligned:
        notices.append(
            f"rank {rank_list(unaligned)}: clock not aligned, "
            f"no GPU collective connects it to rank {ranks[0]}"
        )
    return notices


_MOMENT = "in ns as in the tables, or with a unit since the first event of the run: 1.2s, 350ms, 20us"
_FROM = Param("from", "BIGINT", None, _MOMENT, unit="ns")
_TO = Param("to", "BIGINT", None, _MOMENT, unit="ns")
_MARGIN = Param("margin", "BIGINT", None, "extra time on both sides", unit="ns", min=0)
_AROUND_NS = 1_000_000


class Moment(Struct, frozen=True):
    """A time: as in the tables, or since the first event of the run."""

    ns: int
    since_start: bool


class ExportRequest(Struct, frozen=True):
    """What to export. `counters` and `overlays` are None for the default ones."""

    counters: Sequence[str] | None = None
    overlays: Sequence[str] | None = None
    start: Moment | None = None
    end: Moment | None = None
    step: int | None = None
    around: str | None = None
    margin_ns: int = 0
    plain: bool = False

    @property
    def has_time_range(self) -> bool:
        """Whether only a time range is exported."""
        return any(bound is not None for bound in (self.start, self.end, self.step, self.around))

    @property
    def is_since_start(self) -> bool:
        """Whether a time counts from the first event of the run."""
        return any(moment is not None and moment.since_start for moment in (self.start, self.end))

    def draws_findings(self, ranks: int) -> bool:
        """Whether findings are drawn in an export of this number of ranks."""
        if self.overlays is not None:
            return "findings" in self.overlays
        return not self.plain and (self.has_time_range or ranks > 1)


def export_request(
    counters: str | Iterable[str] | None = None,
    overlays: str | Iterable[str] | None = None,
    start: int | str | None = None,
    end: int | str | None = None,
    step: int | None = None,
    around: str | None = None,
    margin: int | str | None = None,
    plain: bool = False,
) -> ExportRequest:
    """A validated request; raises ParamError for an invalid time, and for several time ranges."""
    choices = {
        hints.Hint("start or end", "--from or --to"): start is not None or end is not None,
        hints.Hint("step", "--step"): step is not None,
        hints.Hint("around", "--around"): around is not None,
    }
    ranges = [option for option, is_given in choices.items() if is_given]
    if len(ranges) > 1:
        options = " and ".join("{}" for _ in ranges)
        raise ParamError(hints.fill(options + " both select a time range", *ranges), "use one of them")
    if plain and (counters or overlays):
        raise ParamError(
            hints.fill("{} adds no tracks", hints.option("plain")), "remove it, or the counters and overlays"
        )
    if margin is not None and not ranges:
        raise ParamError(
            hints.Hint("margin needs a time range", "--margin needs a time range"),
            hints.Hint("use start and end, step or around", "use --from and --to, --step or --around"),
        )
    margin_ns = cast(_MARGIN, margin)
    if margin_ns is None:
        margin_ns = _AROUND_NS if around is not None else 0
    assert isinstance(margin_ns, int)
    moments = _moment(_FROM, start), _moment(_TO, end)
    return ExportRequest(as_list(counters), as_list(overlays), *moments, step, around, margin_ns, plain)


def _moment(param: Param, value: int | str | None) -> Moment | None:
    ns = cast(param, value)
    if ns is None:
        return None
    assert isinstance(ns, int)
    return Moment(ns, since_start=isinstance(value, str) and value.strip()[-1:].isalpha())


_ALWAYS = ("events", "ranks", "flows", "memory_timeline")
_DEFAULTS = (COUNTERS["queue_length"], OVERLAYS["steps"], OVERLAYS["idle"], FINDINGS)


class Additions(Struct, frozen=True):
    """The counters and overlays of an export, and the contracts that it reads."""

    items: tuple[Addition, ...]
    contracts: tuple[Contract, ...]

    def check_needs(self, selected: Sequence[SelectedRun]) -> None:
        """Raises ParamError if a rank lacks the data of an addition."""
        for contract in self.contracts:
            for rank in with_capabilities(contract, selected).skipped:
                message = f"{rank.run_id} rank {rank.rank}: {contract.name}: {rank.reason}"
                raise ParamError(message, "remove it from the overlays or counters")

    def create(self, con: engine.Connection, findings: FindingRows) -> None:
        """Creates a view for each analysis, with default parameters, and a table of the findings."""
        if FINDINGS in self.items:
            create_findings_table(con, findings)
        for contract in self.contracts:
            if contract.kind == "analysis":
                sql = engine.sql_with_params(contract, {})
                con.execute(f"CREATE VIEW {quote_name(contract.name)} AS\n{sql}")


def additions(catalog: Catalog, counters: Iterable[str] = (), overlays: Iterable[str] = ()) -> Additions:
    """The counters and overlays of these names; raises UnknownName."""
    by_kind = (("counter", COUNTERS, counters), ("overlay", OVERLAYS, overlays))
    requested = []
    for kind, additions_by_name, names in by_kind:
        for name in dict.fromkeys(names):
            if name not in additions_by_name:
                raise UnknownName(kind, name, additions_by_name)
            requested.append(additions_by_name[name])
    return with_contracts(catalog, requested)


def default_additions(
    catalog: Catalog, selected: Sequence[SelectedRun], counters: bool, overlays: bool
) -> tuple[Additions, tuple[str, ...]]:
    """The default additions of a time range or of several ranks, and why others are not drawn."""
    drawn, notices = [], []
    for addition in _DEFAULTS:
        if not (counters if addition.name in COUNTERS else overlays):
            continue
        skipped = [with_capabilities(catalog.get(name), selected).skipped for name in addition.reads]
        reasons = [f"{addition.name} is not drawn: {ranks[0].reason}" for ranks in skipped if ranks]
        notices += reasons[:1]
        drawn += [] if reasons else [addition]
    return with_contracts(catalog, drawn), tuple(notices)


def with_contracts(catalog: Catalog, additions: Sequence[Addition]) -> Additions:
    """These additions, with the contracts that they read."""
    read_by_additions = (name for addition in additions for name in addition.reads)
    names = [*_ALWAYS, *(["kernels"] if additions else []), *read_by_additions]
    return Additions(tuple(additions), tuple(catalog.get(name) for name in dict.fromkeys(names)))


RankRows = Mapping[int, Mapping[str, Any]]  # rank → its row of `ranks`

# On host and device together: from the first start to the last end.
_STEP = """
SELECT
  rank,
  least(host_start_ns, device_start_ns) AS from_ns,
  greatest(host_start_ns + host_ns, device_start_ns + device_ns) AS to_ns
FROM steps
WHERE step = $step
"""


def time_ranges(
    store: Versions,
    catalog: Catalog,
    run: SelectedRun,
    selected: SelectedRun,
    request: ExportRequest,
    ranks: RankRows,
    clocks: Mapping[int, Clock],
    findings: FindingRows,
) -> dict[int, TimeRange]:
    """The time range of each rank. Raises ParamError if no rank has events in it.

    Requested times are those of the clock that ranks are aligned to; `run` has all ranks.
    """
    if request.step is not None:
        ranges = _step_ranges(store, catalog, selected, request.step)
    elif request.around is not None:
        rank, occurrence = worst_occurrence(request.around, findings, selected.run)
        ranges = _on_each_clock(occurrence, clocks, clocks[rank])
    else:
        first_of_run = _first_event(store, catalog, run, clocks) if request.is_since_start else None
        ranges = _on_each_clock(_requested_range(request, ranks, clocks, first_of_run), clocks, Clock())
    margin_ns = request.margin_ns
    widened = {rank: (start - margin_ns, end + margin_ns) for rank, (start, end) in ranges.items()}
    _check_not_empty(widened, ranks, selected.run)
    return widened


def _step_ranges(store: Versions, catalog: Catalog, selected: SelectedRun, step: int) -> dict[int, TimeRange]:
    with connection(store, catalog, [selected], [catalog.get("steps")]) as con:
        rows = con.execute(_STEP, {"step": step}).fetchall()
        steps = [number for (number,) in con.execute("SELECT DISTINCT step FROM steps").fetchall()]
    ranges = {rank: (start, end) for rank, start, end in rows}
    missing = sorted(set(selected.ranks) - set(ranges))
    if missing:
        hint = (
            f"it has steps {rank_list(steps)}"
            if steps
            else hints.Hint("it has no steps; use start and end", "it has no steps; use --from and --to")
        )
        raise ParamError(f"{selected.run} rank {rank_list(missing)} has no step {step}", hint)
    return ranges


def _first_event(
    store: Versions, catalog: Catalog, run: SelectedRun, clocks: Mapping[int, Clock]
) -> int | None:
    """The first event of the run by the clock of the exported ranks; None if its clocks differ."""
    by_rank = rank_clocks(store, catalog, run, run.ranks)
    if len({clock.reference_rank for clock in by_rank.values()}) > 1:
        return None
    rank, clock = next(iter(clocks.items()))
    starts = ((rank_of_run.rank, rank_of_run.facts.get("start_ns")) for rank_of_run in run.by_rank)
    firsts = [start - by_rank[number].offset_ns for number, start in starts if isinstance(start, int)]
    return min(firsts) + by_rank[rank].offset_ns - clock.offset_ns if firsts else None


def _requested_range(
    request: ExportRequest, ranks: RankRows, clocks: Mapping[int, Clock], first_of_run: int | None
) -> TimeRange:
    timed = _with_times(ranks)
    if not timed:
        raise ParamError("no event has a time", "export the entire trace")
    first = min(row["start_ns"] - clocks[rank].offset_ns for rank, row in timed.items())
    last = max(row["end_ns"] - clocks[rank].offset_ns for rank, row in timed.items()) + 1
    zero = first if first_of_run is None else first_of_run
    start, end = _resolve(request.start, zero, first), _resolve(request.end, zero, last)
    if start >= end:
        raise ParamError("the time range is empty", f"the trace is {(last - first) / 1e6:g} ms long")
    return start, end


def _on_each_clock(times: TimeRange, clocks: Mapping[int, Clock], clock: Clock) -> dict[int, TimeRange]:
    """A time range by one clock, by the clock of each rank."""
    start, end = times[0] - clock.offset_ns, times[1] - clock.offset_ns
    offsets = {rank: clock.offset_ns for rank, clock in clocks.items()}
    return {rank: (start + offset_ns, end + offset_ns) for rank, offset_ns in offsets.items()}


def _resolve(moment: Moment | None, first: int, default: int) -> int:
    if moment is None:
        return default
    return first + moment.ns if moment.since_start else moment.ns


def _with_times(ranks: RankRows) -> RankRows:
    return {rank: row for rank, row in ranks.items() if None not in (row["start_ns"], row["end_ns"])}


def _check_not_empty(ranges: Mapping[int, TimeRange], ranks: RankRows, run: str) -> None:
    """Raises ParamError if no rank has events in its time range."""
    timed = _with_times(ranks)
    if any(
        ranges[rank][0] <= row["end_ns"] and ranges[rank][1] > row["start_ns"] for rank, row in timed.items()
    ):
        return
    rank, row = next(iter(timed.items()))
    length = f"{(row['end_ns'] - row['start_ns']) / 1e6:g} ms"
    raise ParamError(
        f"{run} has no events in this time range",
        f"rank {rank} has events from {row['start_ns']} to {row['end_ns']} ns ({length});"
        " numbers without a unit are such times",
    )
