"""Selected runs, each in one published version, and their selected ranks: the input of every query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, ParamError, TwError, UnknownName
from tracewarehouse.exact_text import rank_list
from tracewarehouse.runs.selectors import Match, RunAttributes, is_plain, match_runs
from tracewarehouse.storage import Brief, Rank, RankSource, RunVersion, Store, run_key

if TYPE_CHECKING:
    from tracewarehouse.result import Result


@dataclass(frozen=True)
class SelectedRun:
    """A published version of a run and its selected ranks, ascending."""

    version: RunVersion
    ranks: tuple[int, ...]
    # Selected by its name or a prefix of it, so that damage of its files is an error, not a notice.
    named: bool = field(default=False, compare=False)

    @property
    def run(self) -> str:
        """The run's name."""
        return self.version.run

    @property
    def selector(self) -> str:
        """`RUN@vN`, which selects the same version again."""
        return f"{self.run}@v{self.version.number}"

    @property
    def by_rank(self) -> tuple[Rank, ...]:
        """The selected ranks with their sources."""
        wanted = frozenset(self.ranks)
        return tuple(rank for rank in self.version.by_rank if rank.rank in wanted)

    @property
    def sources(self) -> tuple[RankSource, ...]:
        """The sources of the selected ranks."""
        wanted = frozenset(self.ranks)
        return tuple(source for source in self.version.sources if source.rank in wanted)

    @property
    def is_part(self) -> bool:
        """Whether some ranks of the run are not selected."""
        return len(self.ranks) < len(self.version.by_rank)


class StoredRuns:
    """The runs of a store, as a `RunIndex`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._listed: dict[str, Brief] = {}
        self._found: dict[str, RunVersion] = {}

    def find(self, run: str, number: int | None) -> str | None:
        """The stored spelling of a run with exactly this name; None without one."""
        try:
            found = self.store.newest(run) if number is None else self.store.get(run, number)
        except (ParamError, UnknownName):
            return None
        if found and number is None:
            self._found[found.run] = found
        return found.run if found else None

    def removed(self, run: str) -> str | None:
        """The last readable version of a removed run; None if it was not removed."""
        with suppress(TwError):
            if self.store.head(run).tombstone:
                left = [each for each in self.store.readable(run) if not each.tombstone]
                return f"{left[-1].run}@v{left[-1].number}" if left else None
        return None

    def version(self, match: Match) -> RunVersion | None:
        """The version of a match; None if its run was removed in the meantime."""
        if match.number is not None:
            return self.store.get(match.run, match.number)
        return self._found.get(match.run) or self.store.newest(match.run)

    def names(self, prefix: str = "") -> Sequence[str]:
        """The names of all published runs, or of those with a prefix."""
        briefs = self.store.briefs(prefix)
        self._listed |= {brief.run: brief for brief in briefs}
        names = {brief.run for brief in briefs if brief.run.startswith(prefix)}
        return sorted(names | self._damaged(prefix, names))

    def _damaged(self, prefix: str, known: Collection[str]) -> set[str]:
        """The damaged runs that begin with a prefix: naming one is an error, but not knowing it is not."""
        keys = set(self.store.run_keys(prefix)) - {run_key(name) for name in known} if prefix else set()
        found = set()
        for key in keys:
            try:
                self.store.brief(key)
            except DamagedRunError:
                found.add(self.store.name(key))
        return {name for name in found if name.startswith(prefix)}

    def attributes(self, run: str) -> RunAttributes:
        """The attributes of a run. Raises UnknownName."""
        brief = self._listed.get(run) or self.store.brief(run)
        if brief is None:
            raise UnknownName("run", run, self.store.runs())
        return brief_attributes(brief)


def run_attributes(version: RunVersion) -> RunAttributes:
    """The attributes of a run in this version: start from its traces, time of its first commit."""
    return brief_attributes(version.brief)


def brief_attributes(brief: Brief) -> RunAttributes:
    """The attributes of a run of which only the brief is known."""
    return RunAttributes(brief.run, brief.labels, brief.start_ns, brief.ingested_at)


def select_runs(store: Store, selectors: Iterable[str] | None = None) -> tuple[SelectedRun, ...]:
    """The runs that match the selectors (None: all), with all their ranks, in time order.

    Raises UnknownName for a selector without a match.
    """
    if selectors is None:
        return in_order(SelectedRun(version, version.ranks) for version in store.present())
    selectors, index = tuple(selectors), StoredRuns(store)
    try:
        matches = match_runs(selectors, index)
    except UnknownName as unknown:
        explain_unknown(store, unknown)
        raise
    named = any(map(is_plain, selectors))
    versions = [index.version(each) for each in matches]
    return in_order(SelectedRun(version, version.ranks, named) for version in versions if version)


def explain_unknown(store: Store, unknown: UnknownName) -> None:
    """Adds a hint to the error for a run with nothing published: it is pending, or its ranks are pushed."""
    if unknown.kind != "run":
        return
    if waiting := store.pending_runs().get(unknown.name):
        text = "pending: {} of {} ranks ingested; {} adds the others"
        unknown.with_hint(hints.fill(text, len(waiting), waiting[0].expected_ranks, hints.ingest()))
    elif _is_pushed(store, unknown.name):
        unknown.with_hint(hints.fill("its ranks are pushed; {} publishes them", hints.seal(unknown.name)))


def _is_pushed(store: Store, run: str) -> bool:
    try:
        return bool(store.pushed_bounds(run))
    except ParamError:  # not a run name
        return False


def narrow(selected: Sequence[SelectedRun], runs: Iterable[str]) -> tuple[SelectedRun, ...]:
    """The selected runs that match the selectors."""
    numbers = {each.run: each.number for each in match_runs(runs, _SelectedRuns(selected))}
    return tuple(
        each for each in selected if each.run in numbers and numbers[each.run] in (None, each.version.number)
    )


def only_ranks(selected: Sequence[SelectedRun], ranks: Iterable[int]) -> tuple[SelectedRun, ...]:
    """The selected runs narrowed to these ranks; runs without any of them are dropped.

    Raises UnknownName for a rank that no run has.
    """
    wanted = frozenset(ranks)
    present = {rank for each in selected for rank in each.ranks}
    for rank in sorted(wanted - present):
        raise UnknownName("rank", str(rank), [], f"available: {rank_list(present)}")
    kept = (replace(each, ranks=tuple(rank for rank in each.ranks if rank in wanted)) for each in selected)
    return tuple(each for each in kept if each.ranks)


def in_order(selected: Iterable[SelectedRun]) -> tuple[SelectedRun, ...]:
    """By start time, ties by name."""
    return tuple(sorted(selected, key=lambda each: run_attributes(each.version).order))


class _SelectedRuns:
    """The runs of a selection, as a `RunIndex`."""

    def __init__(self, selected: Sequence[SelectedRun]) -> None:
        self.versions = {each.run: each.version for each in selected}

    def find(self, run: str, number: int | None) -> str | None:
        same = (name for name in self.versions if name.casefold() == run.casefold())
        name = next(same, None)
        return name if name and number in (None, self.versions[name].number) else None

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(name for name in self.versions if name.startswith(prefix))

    def attributes(self, run: str) -> RunAttributes:
        return run_attributes(self.versions[run])

    def removed(self, run: str) -> str | None:
        return None


class Selection(Protocol):
    """Selected runs that can be queried, as a `Warehouse`."""

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis."""
        ...

    def run_or_skip(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis, without runs that lack a table of it."""
        ...

    def query_all(self, sql: str) -> Result:
        """The rows of a SELECT."""
        ...

    def selected(self) -> tuple[SelectedRun, ...]:
        """The runs, each with its selected ranks."""
        ...


class RankSelection(Selection, Protocol):
    """A selection that can be narrowed to a rank."""

    def select(self, *, ranks: int) -> Selection:
        """The same with one rank."""
        ...
