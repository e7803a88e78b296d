"""Selected runs, each in one published version, and their selected ranks: the input of every query.

A name may have characters that ingest replaces: `feature/x` selects the run `feature-x`. The beginning of a
name selects a run, and so does its end, if they are those of a single run.
A glob (`run-*`, `label:sweep=*`) has `*`, `?` or `[ab]`; a list has selectors separated by commas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import (
    DamagedRunError,
    ExpressionError,
    ParamError,
    TwError,
    UnknownName,
    WarehouseError,
)
from tracewarehouse.exact_text import rank_list
from tracewarehouse.late_regex import late_regex
from tracewarehouse.storage.layout import parse_reference, run_key, run_name
from tracewarehouse.storage.model import Brief, Rank, RankSource, RunVersion, TableFile
from tracewarehouse.storage.store import Store

_VERSIONED = late_regex(r"(?P<run>.+)@v(?P<number>[0-9]{1,9})")
_FEW_RUNS = 8  # are listed in messages
_GLOB = late_regex(r"[*?\[]")
_EXAMPLES = "a name, its beginning or end, a glob, @latest, @previous, label:KEY=VALUE, RUN@vN, or a list A,B"


class Match(Struct, frozen=True):
    """A matching run; `number` is the requested version, None for the newest."""

    run: str
    number: int | None = None


def match_runs(selectors: Iterable[str], index: RunIndex) -> tuple[Match, ...]:
    """The runs that match any of the selectors, each once.

    Raises UnknownName, with close matches, for a selector without a match, TwError for an ambiguous one.
    """
    by_run: dict[str, Match] = {}
    for selector in selectors:
        for match in _matches(selector, index):
            if by_run.setdefault(match.run, match) != match:
                raise TwError(f"run {match.run} was selected in two versions", "select one version at a time")
    return tuple(by_run.values())


def is_plain(selector: str) -> bool:
    """Whether the selector names one run: it is not a glob, list, label or `@latest`."""
    return not (selector.startswith(("@", "label:")) or "," in selector or _GLOB.search(selector))


def split_list(selector: str) -> list[str]:
    """The selectors of a list `a,label:k=v,l=w,b`: a part with `=` belongs to the label before it."""
    selectors: list[str] = []
    for part in selector.split(","):
        if selectors and selectors[-1].startswith("label:") and "=" in part and not part.startswith("label:"):
            selectors[-1] += f",{part}"
        else:
            selectors.append(part.strip())
    return selectors


def _matches(selector: str, index: RunIndex) -> list[Match]:
    selectors = split_list(selector)
    if len(selectors) > 1:
        return [match for listed in selectors if listed for match in _matches(listed, index)]
    if selector in ("@latest", "@previous"):
        names = index.names()
        back = {"@latest": 1, "@previous": 2}[selector]
        if len(names) < back:
            stored = "one run" if names else "no runs"
            raise UnknownName("run", selector, [], f"the warehouse has {stored}")
        return [Match(sorted(index.attributes(name).order for name in names)[-back][1])]
    if selector.startswith("label:"):
        return _by_label(selector, index)
    if selector.startswith("@"):
        raise UnknownName("selector", selector, ["@latest", "@previous"], f"a run is {_EXAMPLES}")
    if _GLOB.search(selector):
        return _by_glob(selector, index)
    versioned = _VERSIONED.fullmatch(selector)
    if versioned:
        number = int(versioned["number"])
        return [Match(_by_name(versioned["run"], index, number), number)]
    return [Match(_by_name(selector, index))]


def _by_name(name: str, index: RunIndex, number: int | None = None) -> str:
    exact = index.find(name, number) or _as_stored(name, index, number)
    if exact is not None:
        return exact
    matches, removed = sorted(index.names(name)) if name else [], None
    if not matches and name and (removed := index.removed(name)) is None:
        matches = sorted(run for run in index.names() if run.endswith(name))
    if len(matches) > 1:
        shown = ", ".join(matches[:_FEW_RUNS]) + (", …" if len(matches) > _FEW_RUNS else "")
        raise TwError(f"'{name}' matches {len(matches)} runs", f"use one of {shown}")
    if removed:
        hint = hints.fill("it was removed; readable as {} until {}", removed, hints.call("clean"))
        raise UnknownName("run", name, (), hint)
    if not matches:
        names = index.names()
        listing = hints.fill("{} lists all runs", hints.call("runs")) if len(names) > _FEW_RUNS else None
        raise UnknownName("run", name, names, _empty_hint(names) or listing)
    return matches[0]


def _as_stored(name: str, index: RunIndex, number: int | None) -> str | None:
    """The run of a name that ingest stores with other characters: `pr-feature/x` is `pr-feature-x`."""
    try:
        stored, differs = run_name(name)
    except ParamError:  # too long, or without a letter
        return None
    return index.find(stored, number) if differs else None


def _by_glob(pattern: str, index: RunIndex) -> list[Match]:
    names = index.names()
    matches = [index.attributes(name) for name in names if fnmatchcase(name, pattern)]
    if not matches:
        plain = _GLOB.split(pattern)[0]
        raise UnknownName(
            "run", pattern, names, _empty_hint(names) or f"no run matches; {_listed(names, plain)}"
        )
    return [Match(run) for _, run in sorted(match.order for match in matches)]


def _listed(names: Sequence[str], like: str) -> str:
    """The runs that begin like the text, else how to list all."""
    similar = [name for name in names if like and name.startswith(like)][:_FEW_RUNS]
    return f"there are {', '.join(similar)}" if similar else hints.fill("{} lists all", hints.call("runs"))


def _by_label(selector: str, index: RunIndex) -> list[Match]:
    labels = parse_labels(selector.removeprefix("label:").split(","))
    briefs = [index.attributes(name) for name in index.names()]
    matches = [brief for brief in briefs if all(_has(brief.labels, *pair) for pair in labels.items())]
    if not matches:
        known_labels = {f"label:{key}={value}" for brief in briefs for key, value in brief.labels.items()}
        raise UnknownName("label", selector, known_labels, None if known_labels else "no run has a label")
    return [Match(run) for _, run in sorted(brief.order for brief in matches)]


def _has(labels: Mapping[str, str], key: str, wanted: str) -> bool:
    value = labels.get(key)
    return value is not None and (value == wanted or fnmatchcase(value, wanted))


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """`["commit=3f2a", "cluster=a"]` as a mapping. Raises ExpressionError for a text without a key."""
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ExpressionError(f"not a label: {text or '(empty)'}", "write KEY=VALUE")
        labels[key.strip()] = value.strip()
    return labels


def _empty_hint(names: Sequence[str]) -> str | None:
    return None if names else hints.fill("the warehouse is empty; {} ingests traces", hints.ingest())


class SelectedRun(Struct, frozen=True, gc=False):
    """A published version of a run and its selected ranks, ascending."""

    version: RunVersion
    ranks: tuple[int, ...]
    # Selected by its name or a prefix of it, so that damage of its files is an error, not a notice.
    named: bool = False

    @property
    def run(self) -> str:
        """The run's name."""
        return self.version.run

    @property
    def selector(self) -> str:
        """`RUN@vN`, which selects the same version again."""
        return f"{self.run}@v{self.version.number}"

    @property
    def job(self) -> str:
        """The run of the first profiling window of its processes: `RUN` of `RUN~2`, else its own name."""
        return self.run.removesuffix(f"~{self.version.labels.get('span')}")

    @property
    def by_rank(self) -> tuple[Rank, ...]:
        """The selected ranks with their sources."""
        if self.ranks == self.version.ranks:
            return self.version.by_rank
        selected_ranks = frozenset(self.ranks)
        return tuple(rank for rank in self.version.by_rank if rank.rank in selected_ranks)

    @property
    def sources(self) -> tuple[RankSource, ...]:
        """The sources of the selected ranks."""
        selected_ranks = frozenset(self.ranks)
        return tuple(source for source in self.version.sources if source.rank in selected_ranks)

    @property
    def files(self) -> Iterator[TableFile]:
        """The files of these sources; one that several sources share comes with each of them."""
        return (file for source in self.sources for file in source.files)

    @property
    def is_part(self) -> bool:
        """Whether some ranks of the run are not selected."""
        return len(self.ranks) < len(self.version.by_rank)


class StoredRuns:
    """The runs of a store; `names` and `attributes` read only versions of the requested runs."""

    def __init__(self, store: Store, every: Sequence[Brief] | None = None) -> None:
        self.store, self._every = store, every
        self._listed: dict[str, Brief] = {}
        self._found: dict[str, RunVersion] = {}

    def find(self, run: str, number: int | None) -> str | None:
        """The stored spelling of a run with exactly this name and version (None: any); None without one."""
        try:
            version = self.store.newest(run) if number is None else self.store.get(run, number)
        except (ParamError, UnknownName):
            return None
        if version and number is None:
            self._found[version.run] = version
        return version.run if version else None

    def removed(self, run: str) -> str | None:
        """The last readable version of a removed run; None if it was not removed."""
        with suppress(TwError):
            if self.store.head(run).tombstone:
                versions = [version for version in self.store.readable(run) if not version.tombstone]
                return f"{versions[-1].run}@v{versions[-1].number}" if versions else None
        return None

    def version(self, match: Match) -> RunVersion | None:
        """The version of a match; None if its run was removed in the meantime."""
        if match.number is not None:
            return self.store.get(match.run, match.number)
        return self._found.get(match.run) or self.store.newest(match.run)

    def names(self, prefix: str = "") -> Sequence[str]:
        """The names of all published runs, or of those with a prefix."""
        briefs = self.store.briefs(prefix) if prefix or self._every is None else self._every
        self._listed |= {brief.run: brief for brief in briefs}
        names = {brief.run for brief in briefs if brief.run.startswith(prefix)}
        return sorted(names | self._damaged(prefix, names))

    def _damaged(self, prefix: str, known: Collection[str]) -> set[str]:
        """The damaged runs that begin with a prefix: naming one is an error, but not knowing it is not."""
        keys = set(self.store.run_keys(prefix)) - {run_key(name) for name in known} if prefix else set()
        damaged = set()
        for key in keys:
            try:
                self.store.newest(key)
            except DamagedRunError:
                damaged.add(self.store.name(key))
        return {name for name in damaged if name.startswith(prefix)}

    def attributes(self, run: str) -> Brief:
        """The attributes of a run that `names` found."""
        return self._listed[run]


def select_runs(
    store: Store, selectors: Iterable[str] | None = None, every: Sequence[Brief] | None = None
) -> tuple[SelectedRun, ...]:
    """The runs that match the selectors (None: all), with all their ranks, in time order.

    `every`: all runs, if they are known. Raises UnknownName for a selector without a match.
    """
    if selectors is None:
        return in_order(SelectedRun(version, version.ranks) for version in store.present())
    selectors, index = tuple(selectors), StoredRuns(store, every)
    try:
        matches = match_runs(selectors, index)
    except UnknownName as unknown:
        explain_unknown(store, unknown)
        raise
    is_named = any(map(is_plain, selectors))
    versions = [index.version(match) for match in matches]
    return in_order(SelectedRun(version, version.ranks, is_named) for version in versions if version)


def explain_unknown(store: Store, unknown: UnknownName) -> None:
    """Adds a hint to the error for a run with nothing published: its ranks wait for others."""
    if unknown.kind != "run":
        return
    with suppress(ParamError, WarehouseError):  # not a run name, or a web server
        if waiting := store.pending(unknown.name):
            text = "pending: {} of {} ranks ingested; {} adds the others, {} publishes without them"
            expected = max(source.expected_ranks for source in waiting)
            adds, seals = hints.ingest(), hints.seal(unknown.name)
            ranks = len({source.source.rank for source in waiting})
            unknown.with_hint(hints.fill(text, ranks, expected, adds, seals))


def narrow(selected: Sequence[SelectedRun], runs: Iterable[str]) -> tuple[SelectedRun, ...]:
    """The selected runs that match the selectors."""
    numbers = {run.run: run.number for run in match_runs(runs, _SelectedRuns(selected))}
    return tuple(
        run for run in selected if run.run in numbers and numbers[run.run] in (None, run.version.number)
    )


def as_list(texts: str | Iterable[str] | None) -> list[str] | None:
    """A text or several as a list; None stays None."""
    return [texts] if isinstance(texts, str) else None if texts is None else list(texts)


def unversioned(run: str, what: str) -> str:
    """The selector itself; raises ParamError if it selects one version, since `what` applies to all."""
    name, version = parse_reference(run)
    if version is not None:
        raise ParamError(f"{run} is one version, and {what} applies to the run", f"use {name}")
    return run


def unversioned_runs(runs: str | Iterable[str] | None, what: str) -> list[str] | None:
    """Each of the selectors, as `unversioned`; None stays None."""
    names = as_list(runs)
    return None if names is None else [unversioned(run, what) for run in names]


def matching_runs(
    store: Store, within: Sequence[SelectedRun] | None, selectors: Iterable[str] | None
) -> tuple[SelectedRun, ...]:
    """The runs that match the selectors (None: all), of those `within` (None: of all of the store)."""
    if within is None:
        return select_runs(store, selectors)
    return tuple(within) if selectors is None else narrow(within, selectors)


def only_ranks(selected: Sequence[SelectedRun], ranks: Iterable[int]) -> tuple[SelectedRun, ...]:
    """The selected runs narrowed to these ranks; runs without any of them are dropped.

    Raises UnknownName for a rank that no run has.
    """
    chosen = frozenset(ranks)
    present = {rank for run in selected for rank in run.ranks}
    for rank in sorted(chosen - present):
        raise UnknownName("rank", str(rank), [], f"available: {rank_list(present)}")
    narrowed = (replace(run, ranks=tuple(rank for rank in run.ranks if rank in chosen)) for run in selected)
    return tuple(run for run in narrowed if run.ranks)


def in_order(selected: Iterable[SelectedRun]) -> tuple[SelectedRun, ...]:
    """By start time, ties by name."""
    return tuple(sorted(selected, key=lambda run: run.version.brief.order))


class _SelectedRuns:
    """The runs of a selection, as `StoredRuns`."""

    def __init__(self, selected: Sequence[SelectedRun]) -> None:
        self.versions = {run.run: run.version for run in selected}

    def find(self, run: str, number: int | None) -> str | None:
        same = (name for name in self.versions if name.casefold() == run.casefold())
        name = next(same, None)
        return name if name and number in (None, self.versions[name].number) else None

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(name for name in self.versions if name.startswith(prefix))

    def attributes(self, run: str) -> Brief:
        return self.versions[run].brief

    def removed(self, run: str) -> str | None:
        return None


# Runs that selectors can match.
RunIndex: TypeAlias = StoredRuns | _SelectedRuns
