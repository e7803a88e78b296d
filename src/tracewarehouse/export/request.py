"""What someone asked an export for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.params import Param, cast
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.duck import engine
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.export.counters import COUNTERS
from tracewarehouse.export.finding_markers import FINDINGS, Rows, create_found
from tracewarehouse.export.overlay_events import Added
from tracewarehouse.export.overlays import OVERLAYS
from tracewarehouse.runs.capabilities import with_capabilities
from tracewarehouse.runs.selection import SelectedRun

_MOMENT = "as tables tell it in ns, or with a unit since the first event: 1.2s, 350ms, 20us"
_FROM = Param("from", "BIGINT", None, _MOMENT, unit="ns")
_TO = Param("to", "BIGINT", None, _MOMENT, unit="ns")
_MARGIN = Param("margin", "BIGINT", None, "this much more on both sides", unit="ns", min=0)
_AROUND_NS = 1_000_000


@dataclass(frozen=True)
class Moment:
    """A time: as the tables tell it, or since the first event."""

    ns: int
    since_start: bool


@dataclass(frozen=True)
class Asked:
    """What is to be written. `counters` and `overlays` are None where those that suit are meant."""

    counters: tuple[str, ...] | None = None
    overlays: tuple[str, ...] | None = None
    start: Moment | None = None
    end: Moment | None = None
    step: int | None = None
    around: str | None = None
    margin_ns: int = 0
    plain: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether only a part of the time is wanted."""
        return any(each is not None for each in (self.start, self.end, self.step, self.around))

    def draws_findings(self, ranks: int) -> bool:
        """Whether findings are drawn over so many ranks."""
        if self.overlays is not None:
            return "findings" in self.overlays
        return not self.plain and (self.is_cut or ranks > 1)


def asked(
    counters: Iterable[str] | None = None,
    overlays: Iterable[str] | None = None,
    start: int | str | None = None,
    end: int | str | None = None,
    step: int | None = None,
    around: str | None = None,
    margin: int | str | None = None,
    plain: bool = False,
) -> Asked:
    """The same, checked; raises ParamError for a time that is none, and for several ways to say where."""
    ways = {"--from or --to": start is not None or end is not None, "--step": step is not None}
    ways["--around"] = around is not None
    said = [way for way, is_said in ways.items() if is_said]
    if len(said) > 1:
        raise ParamError(f"{' and '.join(said)} say twice what is cut out", "give one of them")
    if plain and (counters or overlays):
        raise ParamError(
            hints.fill("{} adds no tracks", hints.option("plain")), "remove it, or the counters and overlays"
        )
    if margin is not None and not said:
        raise ParamError(
            hints.Hint("margin needs a time range", "--margin needs a time range"),
            hints.Hint("use start and end, step or around", "use --from and --to, --step or --around"),
        )
    margin_ns = cast(_MARGIN, margin)
    if margin_ns is None:
        margin_ns = _AROUND_NS if around is not None else 0
    assert isinstance(margin_ns, int)
    return Asked(
        None if counters is None else tuple(counters),
        None if overlays is None else tuple(overlays),
        _moment(_FROM, start),
        _moment(_TO, end),
        step,
        around,
        margin_ns,
        plain,
    )


def _moment(param: Param, value: int | str | None) -> Moment | None:
    ns = cast(param, value)
    if ns is None:
        return None
    assert isinstance(ns, int)
    return Moment(ns, since_start=isinstance(value, str) and value.strip()[-1:].isalpha())


_ALWAYS = ("events", "ranks", "flows", "memory_timeline")
_FOR_TRACKS = ("kernels",)
_OF_A_PART = (COUNTERS["queue_length"], OVERLAYS["steps"], OVERLAYS["idle"], FINDINGS)


@dataclass(frozen=True)
class Additions:
    """What is added to a trace, and the contracts that are read to write it."""

    added: tuple[Added, ...]
    contracts: tuple[Contract, ...]

    def with_more(self, catalog: Catalog, others: Iterable[Added]) -> Additions:
        """These and others."""
        return drawn(catalog, (*self.added, *others))

    def check_needs(self, selected: Sequence[SelectedRun]) -> None:
        """Raises ParamError where a rank does not carry what an addition is made of."""
        for contract in self.contracts:
            for each in with_capabilities(contract, selected).abstained:
                raise ParamError(
                    f"{each.run_id} rank {each.rank}: {contract.name}: {each.reason}",
                    "remove it from the overlays or counters",
                )

    def create(self, con: engine.Connection, found: Rows) -> None:
        """A relation for each analysis that is read, at its defaults, and one for what was found."""
        if FINDINGS in self.added:
            create_found(con, found)
        for contract in self.contracts:
            if contract.kind == "analysis":
                sql = engine.sql_with_params(contract, {})
                con.execute(f"CREATE VIEW {quote_name(contract.name)} AS\n{sql}")


def additions(catalog: Catalog, counters: Iterable[str] = (), overlays: Iterable[str] = ()) -> Additions:
    """Those of these names, each once; raises UnknownName."""
    known = (("counter", COUNTERS, counters), ("overlay", OVERLAYS, overlays))
    return drawn(
        catalog,
        [_named(kind, name, table) for kind, table, names in known for name in dict.fromkeys(names)],
    )


def suited(
    catalog: Catalog, selected: Sequence[SelectedRun], counters: bool, overlays: bool
) -> tuple[Additions, tuple[str, ...]]:
    """What is drawn over a part where nothing else is asked for, and what the trace has nothing for."""
    kept, told = [], []
    for each in _OF_A_PART:
        if not (counters if each.name in COUNTERS else overlays):
            continue
        lacking = [with_capabilities(catalog.get(name), selected).abstained for name in each.reads]
        reasons = [f"{each.name} is not drawn: {left[0].reason}" for left in lacking if left]
        told += reasons[:1]
        kept += [] if reasons else [each]
    return drawn(catalog, kept), tuple(told)


def drawn(catalog: Catalog, added: Iterable[Added]) -> Additions:
    """These, with the contracts that they read."""
    added = tuple(added)
    names = [*_ALWAYS, *(_FOR_TRACKS if added else ()), *(name for each in added for name in each.reads)]
    return Additions(added, tuple(catalog.get(name) for name in dict.fromkeys(names)))


def _named(kind: str, name: str, known: Mapping[str, Added]) -> Added:
    if name not in known:
        raise UnknownName(kind, name, known)
    return known[name]
