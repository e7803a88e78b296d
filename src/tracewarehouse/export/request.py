"""Requests for an export: validated options, and the counters and overlays with the contracts they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Param, cast
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.duck import engine
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.export.counters import COUNTERS
from tracewarehouse.export.finding_markers import FINDINGS, FindingRows, create_findings_table
from tracewarehouse.export.overlay_events import Addition
from tracewarehouse.export.overlays import OVERLAYS
from tracewarehouse.runs.readable import with_capabilities
from tracewarehouse.runs.selection import SelectedRun

_MOMENT = "in ns as in the tables, or with a unit since the first event: 1.2s, 350ms, 20us"
_FROM = Param("from", "BIGINT", None, _MOMENT, unit="ns")
_TO = Param("to", "BIGINT", None, _MOMENT, unit="ns")
_MARGIN = Param("margin", "BIGINT", None, "extra time on both sides", unit="ns", min=0)
_AROUND_NS = 1_000_000


@dataclass(frozen=True)
class Moment:
    """A time: as in the tables, or since the first event."""

    ns: int
    since_start: bool


@dataclass(frozen=True)
class ExportRequest:
    """What to export. `counters` and `overlays` are None for the default ones."""

    counters: tuple[str, ...] | None = None
    overlays: tuple[str, ...] | None = None
    start: Moment | None = None
    end: Moment | None = None
    step: int | None = None
    around: str | None = None
    margin_ns: int = 0
    plain: bool = False

    @property
    def has_time_range(self) -> bool:
        """Whether only a time range is exported."""
        return any(each is not None for each in (self.start, self.end, self.step, self.around))

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
    given = {
        hints.Hint("start or end", "--from or --to"): start is not None or end is not None,
        hints.Hint("step", "--step"): step is not None,
        hints.Hint("around", "--around"): around is not None,
    }
    ranges = [option for option, is_given in given.items() if is_given]
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
    return ExportRequest(
        _names(counters),
        _names(overlays),
        _moment(_FROM, start),
        _moment(_TO, end),
        step,
        around,
        margin_ns,
        plain,
    )


def _names(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    return (given,) if isinstance(given, str) else None if given is None else tuple(given)


def _moment(param: Param, value: int | str | None) -> Moment | None:
    ns = cast(param, value)
    if ns is None:
        return None
    assert isinstance(ns, int)
    return Moment(ns, since_start=isinstance(value, str) and value.strip()[-1:].isalpha())


_ALWAYS = ("events", "ranks", "flows", "memory_timeline")
_FOR_TRACKS = ("kernels",)
_DEFAULTS = (COUNTERS["queue_length"], OVERLAYS["steps"], OVERLAYS["idle"], FINDINGS)


@dataclass(frozen=True)
class Additions:
    """The counters and overlays of an export, and the contracts that it reads."""

    items: tuple[Addition, ...]
    contracts: tuple[Contract, ...]

    def extended(self, catalog: Catalog, others: Iterable[Addition]) -> Additions:
        """These and others."""
        return with_contracts(catalog, (*self.items, *others))

    def check_needs(self, selected: Sequence[SelectedRun]) -> None:
        """Raises ParamError if a rank lacks the data of an addition."""
        for contract in self.contracts:
            for each in with_capabilities(contract, selected).abstained:
                message = f"{each.run_id} rank {each.rank}: {contract.name}: {each.reason}"
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
    known = (("counter", COUNTERS, counters), ("overlay", OVERLAYS, overlays))
    items = [_lookup(kind, name, table) for kind, table, names in known for name in dict.fromkeys(names)]
    return with_contracts(catalog, items)


def default_additions(
    catalog: Catalog, selected: Sequence[SelectedRun], counters: bool, overlays: bool
) -> tuple[Additions, tuple[str, ...]]:
    """The default additions of a time range or of several ranks, and why others are not drawn."""
    items, notices = [], []
    for each in _DEFAULTS:
        if not (counters if each.name in COUNTERS else overlays):
            continue
        abstained = [with_capabilities(catalog.get(name), selected).abstained for name in each.reads]
        reasons = [f"{each.name} is not drawn: {ranks[0].reason}" for ranks in abstained if ranks]
        notices += reasons[:1]
        items += [] if reasons else [each]
    return with_contracts(catalog, items), tuple(notices)


def with_contracts(catalog: Catalog, additions: Iterable[Addition]) -> Additions:
    """These additions, with the contracts that they read."""
    items = tuple(additions)
    names = [*_ALWAYS, *(_FOR_TRACKS if items else ()), *(name for each in items for name in each.reads)]
    return Additions(items, tuple(catalog.get(name) for name in dict.fromkeys(names)))


def _lookup(kind: str, name: str, known: Mapping[str, Addition]) -> Addition:
    if name not in known:
        raise UnknownName(kind, name, known)
    return known[name]
