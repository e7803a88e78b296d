"""`tw derive graphs`: stores operators of graph replays as a table of a new version of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os.path import commonprefix
from typing import Final

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.derive.critical_path import Derived
from tracewarehouse.derive.derived_source import definition, with_derived
from tracewarehouse.derive.graph_inputs import Capture, captures_of, opened, replays_by_rank
from tracewarehouse.derive.graph_nodes import Attributed, attribute
from tracewarehouse.duck.engine import Connection
from tracewarehouse.ingest.naming import folder_run_name, split_name
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.runs.readable import FACT
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Changes, Json, Rank, RunVersion, Store

NAME: Final = "graphs"
_TABLE: Final = "graph_nodes"


@dataclass(frozen=True)
class CaptureRuns:
    """The runs in which captures are searched, after the run itself: the best candidate of a rank first.

    `named` is the run of `--capture`, used for ranks that it has, else for all if it has only one.
    """

    named: SelectedRun | None
    others: tuple[SelectedRun, ...]

    def of(self, rank: Rank) -> Iterator[tuple[SelectedRun, int]]:
        """Runs and ranks that may have captured the graphs of a rank."""
        if self.named is not None:
            ranks = self.named.ranks
            if rank.rank in ranks or len(ranks) == 1:
                yield self.named, rank.rank if rank.rank in ranks else ranks[0]
            return
        own = _file_name(rank)
        found = [(each, other) for each in self.others for other in each.by_rank if _fits(rank, other)]
        for each, other in sorted(
            found, key=lambda one: (-len(commonprefix((own, _file_name(one[1])))), one[0].run)
        ):
            yield each, other.rank

    def state(self, ranks: Iterable[Rank]) -> list[Json]:
        """What is searched, for the question whether a stored derivation is current."""
        runs = {f"{run.run} {run.version.source}" for rank in ranks for run, _ in self.of(rank)}
        return [*sorted(runs)]


def _fits(rank: Rank, other: Rank) -> bool:
    """Whether a rank of another run is a capture of this rank: file name, folder, rank and world size."""
    sizes = {size for each in (rank, other) if (size := each.facts.get("world_size")) is not None}
    is_capture = "capture" in _file_name(other).lower() and other.run != rank.run
    return is_capture and other.rank == rank.rank and len(sizes) <= 1 and _folder(rank) == _folder(other)


def _file_name(rank: Rank) -> str:
    return str(rank.facts.get("source_name") or "")


def _folder(rank: Rank) -> str:
    """The part of a run's name that names the folder of its traces."""
    remainder = split_name(_file_name(rank)).remainder
    return rank.run.removesuffix(f".{folder_run_name(remainder)}") if remainder else rank.run


def derive_graphs(store: Store, catalog: Catalog, selected: SelectedRun, captures: CaptureRuns) -> Derived:
    """Derives the operators of a run's graph replays, unless they are stored and current. Raises TwError."""
    searched = captures.state(selected.by_rank)
    stored = [_fact(rank) for rank in selected.by_rank]
    now = definition(catalog, NAME)
    ranks: dict[int, tuple[str, ...]] = dict.fromkeys(selected.ranks, ())
    if all(fact.get("hash") == now and fact.get("searched") == searched for fact in stored):
        return Derived(selected.run, ranks, None, (), _counts(stored))
    found = _attributed(store, catalog, selected, captures)
    if not found:
        notice = f"{selected.run}: no graph launches with GPU activities"
        return Derived(selected.run, ranks, None, (notice,))
    version = _publish(store, catalog, selected, found, searched)
    facts = [_rank_fact(each, searched) for each in found.values()]
    return Derived(selected.run, ranks, version.number if version else None, (), _counts(facts))


def _counts(facts: Sequence[dict[str, Json]]) -> tuple[int, int]:
    """Attributed and all replayed activities."""
    attributed, activities = (
        sum(value for fact in facts if isinstance(value := fact.get(name), int))
        for name in ("attributed", "activities")
    )
    return attributed, activities


def _fact(rank: Rank) -> dict[str, Json]:
    derived = rank.main.facts.get(FACT)
    fact = derived.get(NAME) if isinstance(derived, dict) else None
    return fact if isinstance(fact, dict) else {}


def _attributed(
    store: Store, catalog: Catalog, selected: SelectedRun, captures: CaptureRuns
) -> dict[int, Attributed]:
    """Rank → its rows, for ranks with graph replays."""
    found = {}
    with ExitStack() as stack:
        connections: dict[str, Connection] = {}

        def connected(run: SelectedRun) -> Connection:
            if run.run not in connections:
                connections[run.run] = stack.enter_context(opened(store, catalog, run))
            return connections[run.run]

        replays = replays_by_rank(connected(selected))
        for rank in selected.by_rank:
            if rank.rank in replays:
                places = [(selected, rank.rank), *captures.of(rank)]
                found[rank.rank] = attribute(replays[rank.rank], _Sources(places, connected))
    return found


class _Sources(Sequence[Sequence[Capture]]):
    """The captures of each place, read when they are first needed."""

    def __init__(
        self, places: Sequence[tuple[SelectedRun, int]], connected: Callable[[SelectedRun], Connection]
    ) -> None:
        self._places = places
        self._connected = connected
        self._read: dict[int, tuple[Capture, ...]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Sequence[Capture]:  # type: ignore[override]
        run, rank = self._places[index]
        if index not in self._read:
            self._read[index] = captures_of(self._connected(run), run.run, rank)
        return self._read[index]


def _rank_fact(rows: Attributed | None, searched: list[Json]) -> dict[str, Json]:
    return {
        "searched": searched,
        "activities": rows.activities if rows else 0,
        "attributed": rows.attributed if rows else 0,
    }


def _publish(
    store: Store,
    catalog: Catalog,
    selected: SelectedRun,
    found: dict[int, Attributed],
    searched: list[Json],
) -> RunVersion | None:
    sources = [rank.main for rank in selected.by_rank]
    headers = store.headers(sources)
    with store.staging() as staging, RankFiles(catalog, staging, single=False) as files:
        for rank, of_rank in found.items():
            files.add(selected.run, rank, _TABLE, of_rank.rows)
        staged = files.staged(selected.run)
        committed = store.commit(
            [
                with_derived(
                    catalog,
                    source,
                    headers.get(source.name, "{}"),
                    NAME,
                    staged.get(source.rank, ()),
                    _rank_fact(found.get(source.rank), searched),
                )
                for source in sources
            ]
        )
        return store.publish(selected.run, Changes(sources=committed, rebuilt=True)).version
