"""`tw derive NAME`: the tables of a derivation, over the runs of a selection that it reads."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tracewarehouse.contracts.contract import DERIVATIONS
from tracewarehouse.derive.critical_path import (
    Derived,
    ScopeRequest,
    derivation_sources,
    derive,
)
from tracewarehouse.derive.graphs import CaptureRuns, derive_graphs
from tracewarehouse.derive.wait_attribution import derive_wait_attribution
from tracewarehouse.engines import EngineOrName, is_remote
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.query.selection import Selection
from tracewarehouse.storage.parquet_file import Level


def derive_tables(
    selection: Selection,
    name: str,
    run: str,
    ranks: int | Iterable[int] | None,
    wanted: ScopeRequest,
    capture: str | None,
    engine: EngineOrName,
) -> Derived:
    """Computes the tables of a derivation of a run, as a new version. Raises UnknownName, ParamError."""
    if name not in DERIVATIONS:
        raise UnknownName("derivation", name, DERIVATIONS)
    if name != "graphs" and capture is not None:
        raise ParamError(f"{name} reads no captures", "leave out capture")
    if name != "critical_path" and is_remote(engine):
        raise ParamError(f"{name} reads all ranks at once, in this process", "leave out engine")
    if name != "critical_path" and (ranks is not None or wanted != ScopeRequest()):
        raise ParamError(f"{name} has no scopes", "leave out ranks, steps, annotations and entire_trace")
    store, catalog = selection.store, selection.catalog
    runs = selection.one_run(run)
    if ranks is not None:
        runs = runs.select(ranks=ranks)
    sources = derivation_sources(catalog, name)
    readable = selection.readable(sources, runs.selected(), Level.FULL)
    (selected,) = readable.selected
    if name == "critical_path":
        derived = derive(store, catalog, selected, wanted, engine)
    elif name == "wait_attribution":
        derived = derive_wait_attribution(selection, selected)
    else:
        capture_runs = selection.one_run(capture).selected() if capture is not None else ()
        capturing = selection.readable(sources, capture_runs or None).selected
        captures = CaptureRuns(capturing[0] if capture_runs else None, capturing)
        derived = derive_graphs(store, catalog, selected, captures)
    return replace(derived, notices=(*readable.notices, *derived.notices))
