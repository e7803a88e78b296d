"""What an export may add: chosen by name, with the contracts that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracewarehouse import engine
from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.export.added import Added
from tracewarehouse.export.counters import COUNTERS
from tracewarehouse.export.found import FINDINGS, Rows, create_found
from tracewarehouse.export.overlays import OVERLAYS
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.needs import able
from tracewarehouse.sqltext import quote_name

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

    def check_needs(self, chosen: Sequence[Chosen]) -> None:
        """Raises ParamError where a rank does not carry what an addition is made of."""
        for contract in self.contracts:
            for each in able(contract, chosen).abstained:
                raise ParamError(
                    f"{each.run_id} rank {each.rank}: {contract.name}: {each.reason}", "leave it out"
                )

    def create(self, con: engine.Connection, found: Rows) -> None:
        """A relation for each analysis that is read, at its defaults, and one for what was found."""
        if FINDINGS in self.added:
            create_found(con, found)
        for contract in self.contracts:
            if contract.kind == "analysis":
                sql = engine.sql_with_params(contract, engine.bind(contract, {}))
                con.execute(f"CREATE VIEW {quote_name(contract.name)} AS\n{sql}")


def additions(catalog: Catalog, counters: Iterable[str] = (), overlays: Iterable[str] = ()) -> Additions:
    """Those of these names, each once; raises UnknownName."""
    known = (("counter", COUNTERS, counters), ("overlay", OVERLAYS, overlays))
    return drawn(
        catalog,
        [_named(kind, name, table) for kind, table, names in known for name in dict.fromkeys(names)],
    )


def suited(
    catalog: Catalog, chosen: Sequence[Chosen], counters: bool, overlays: bool
) -> tuple[Additions, tuple[str, ...]]:
    """What is drawn over a part where nothing else is asked for, and what the trace has nothing for."""
    kept, told = [], []
    for each in _OF_A_PART:
        if not (counters if each.name in COUNTERS else overlays):
            continue
        lacking = [able(catalog.get(name), chosen).abstained for name in each.reads]
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
