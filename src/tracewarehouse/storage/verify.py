"""Verify: compares the stored files with what was written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from tracewarehouse import hints
from tracewarehouse.errors import TwError, WarehouseError
from tracewarehouse.storage import codec, commits, layout, results
from tracewarehouse.storage.commits import FRESH
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import ManySources, Problem, RankSource, RunVersion, TableFile
from tracewarehouse.storage.parquet_file import content_fault
from tracewarehouse.storage.remote import ListedObjects, RemoteObjects
from tracewarehouse.storage.versions import Versions


def verify(store: Versions, deep: bool = False) -> list[Problem]:
    """Every problem of every run: numbering, versions, index, commits, and each Parquet file once.

    Of files in an object store only the sizes, unless `deep`, which downloads them all. What other processes
    change meanwhile may look like damage, once: a problem is what a second look finds, too.
    """
    first = _problems(store, deep)
    again = frozenset(_problems(store, deep, {run_key(one.run) for one in first if one.run}) if first else ())
    return [problem for problem in first if problem in again]


def _problems(store: Versions, deep: bool, runs: Collection[str] | None = None) -> list[Problem]:
    """What looks like a problem of these runs, None for all, or of recorded results."""
    store.forget()
    if isinstance(remote := store.objects, RemoteObjects):
        store = copy(store)
        store.objects = ListedObjects(remote)
    problems: list[Problem] = []
    run_keys = {*store.run_keys(), *store.keys(layout.COMMITS)}
    for key in sorted(run_keys if runs is None else run_keys.intersection(runs)):
        if isinstance(store.objects, ListedObjects):
            store.objects.hold(key)
        problems += _Run(store, key, deep).problems()
    return [
        *problems,
        *_results(store, deep),
        *list_problems(store),
    ]


@dataclass
class _Run:
    """One run while it is verified."""

    store: Versions
    run: str
    deep: bool = False
    # Key → a stored file that a version or commit names.
    files: dict[str, TableFile] = field(default_factory=dict)
    published: dict[str, RankSource] = field(default_factory=dict)
    # Keys that a repair took out.
    taken_out: frozenset[str] = frozenset()

    def problems(self) -> Iterator[Problem]:
        """The problems of the run."""
        numbers = self.store.versions(self.run)
        history = {version.number: version for version in self.store.readable(self.run, whole=True)}
        newest = history[max(history)] if history else RunVersion(self.run, 0, (), {}, None, "", "")
        current = {*newest.paths, *(layout.commit(self.run, name) for name in newest.summary.commits)}
        self.taken_out = frozenset(newest.taken_out) - current
        problems = [*self._entry(numbers, newest), *self._numbering(numbers, newest)]
        for number in numbers:
            if layout.version(self.run, number) in self.taken_out:
                continue
            problems += self._version(number, history.get(number), number in newest.results_of)
        problems += self._chain(history)
        problems += self._commits()
        # Versions may share the object with their files.
        yield from (problem for problem in dict.fromkeys(problems) if problem.path not in self.taken_out)
        yield from self._files()

    def _problem(self, key: str, what: str) -> Problem:
        return Problem(self.run, key, what)

    def _entry(self, numbers: tuple[int, ...], newest: RunVersion) -> Iterator[Problem]:
        """The index entry is intact, and of the newest version; a killed call may not have written it yet."""
        key, entry = layout.entry(self.run), None
        try:
            entry = codec.decode_entry(self.store.objects.get(key), key)
        except FileNotFoundError:
            pass
        except (ValueError, TwError) as error:
            yield self._problem(key, f"damaged index entry: {error}")
            return
        number = entry.number if entry else 0
        # It may be newer than the listing.
        lost = number > max(numbers, default=0) and layout.version(self.run, number)
        if lost and next(iter(self.store.objects.get_many([lost])))[1] is None:
            yield self._problem(layout.version(self.run, number), "version missing: its index entry is there")
        elif entry is not None and number == newest.number:
            if entry.sha256 != self.store.digest(self.run, number):
                yield self._problem(layout.version(self.run, number), "differs from its index entry")
        elif numbers and number < numbers[-1]:
            stored = self.store.objects.stat(layout.version(self.run, numbers[-1]))
            if stored is not None and self.store.objects.clock() - stored.modified >= FRESH:
                yield self._problem(key, f"index entry of v{numbers[-1]} missing")

    def _numbering(self, numbers: tuple[int, ...], newest: RunVersion) -> Iterator[Problem]:
        """`clean` deletes versions, and says so in a later one; any other gap is damage."""
        expected = {*range(newest.kept_from, max(numbers, default=0)), *newest.results_of}
        for number in sorted(expected.difference(numbers)):
            yield self._problem(layout.version(self.run, number), "version missing")

    def _version(self, number: int, version: RunVersion | None, only_results: bool) -> Iterator[Problem]:
        key = layout.version(self.run, number)
        if version is None:
            try:
                version = self.store.decoded(self.run, number)
            except TwError as error:
                yield self._problem(key, error.message)
                return
            if (layout.versions(version.run), version.number) != (layout.versions(self.run), number):
                yield self._problem(key, f"says it is {version.run}@v{version.number}")
        if isinstance(version.sources, ManySources):
            stored = version.sources.stored
            for name, data in self.store.objects.get_many([stored.key]):
                if data is None or codec.digest(data) != stored.sha256:
                    yield self._problem(name, "missing" if data is None else "checksum differs")
                    return
        if not only_results:
            yield from self._agreement(version)

    def _chain(self, history: Mapping[int, RunVersion]) -> Iterator[Problem]:
        """Each version has the checksum of the one before."""
        for number, version in history.items():
            before = self.store.digest(self.run, number - 1) if number - 1 in history else ""
            if version.previous and before and before != version.previous:
                key = layout.version(self.run, number - 1)
                yield self._problem(key, f"differs from what v{number} says of it")

    def _agreement(self, version: RunVersion) -> Iterator[Problem]:
        """Whether the version is consistent; adds its sources and files."""
        place = layout.version(self.run, version.number)
        order = [(source.rank, source.name) for source in version.sources]
        if order != sorted(set(order)):
            yield self._problem(place, "a source is listed twice or out of order")
        rows: dict[str, list[int]] = {}
        for source in version.sources:
            self.published[source.name] = source
            for file in source.files:
                self.files[file.path] = file
                rows.setdefault(file.path, [file.file_rows, file.file_ranks]).append(file.rows)
        # The shares of a packed file sum to its rows if all its ranks are present.
        for path, (file_rows, file_ranks, *shares) in rows.items():
            is_complete = len(shares) == file_ranks
            if sum(shares) > file_rows or (is_complete and sum(shares) != file_rows):
                text = f"{path}: shares of {sum(shares)} rows in a file of {file_rows}"
                yield self._problem(place, text)

    def _commits(self) -> Iterator[Problem]:
        """Every commit is intact and agrees with the versions, and every published source has one."""
        missing: dict[str, dict[str, RankSource]] = {}
        for source in self.published.values():
            missing.setdefault(source.commit, {})[source.name] = source
        settled = self.store.settled(self.run)
        names = [name.text for name in commits.names(self.store.objects, self.run)]
        for name, commit in zip(names, commits.read_many(self.store.objects, self.run, names), strict=True):
            key = layout.commit(self.run, name)
            stated = missing.pop(name, {})
            if isinstance(commit, WarehouseError):
                yield self._problem(key, commit.message)
                continue
            for source in commit.sources:
                if name not in settled:
                    self.files |= {file.path: file for file in source.files}
                if stated.pop(source.name, source) != source:
                    yield self._problem(key, f"rank {source.rank} differs from the published version")
            for source in stated.values():
                yield self._problem(key, f"lacks rank {source.rank}, which was published")
        for name, sources in missing.items():
            ranks = ", ".join(str(source.rank) for source in sources.values())
            yield self._problem(layout.commit(self.run, name), f"commit missing, of rank {ranks}")

    def _files(self) -> Iterator[Problem]:
        files = {path: file for path, file in sorted(self.files.items()) if path not in self.taken_out}
        faults = stored_faults(self.store, files, self.deep)
        for path, file in files.items():
            if (what := faults[path]) is not None:
                yield self._problem(path, what)
            elif self.deep or not self.store.is_remote:
                yield from _metadata(self.store, self.run, path, file)


def list_problems(store: Versions) -> Iterator[Problem]:
    """The list of all runs, if it is damaged or differs from an entry; a warehouse may have none."""
    keys = [entry.key for entry in store.objects.walk(f"{layout.INDEX}/list")]
    stamps = {run: stamp for run, (stamp, _) in store.listed().items()} if keys else {}
    for key, data in store.objects.get_many(keys):
        if data is None or key not in layout.LISTS:
            continue
        try:
            listed = codec.decode_list(data, "list of runs").by_key()
        except TwError as error:
            yield Problem("", key, error.message)
            continue
        for run, entry in listed.items():
            newest = store.entry(run) if entry.stamp and entry.stamp == stamps.get(run) else None
            if newest is not None and (entry.number, entry.sha256) != (newest.number, newest.sha256):
                yield Problem("", key, f"differs from {entry.run}@v{entry.number}")


def _results(store: Versions, deep: bool) -> Iterator[Problem]:
    is_read = deep or not store.is_remote
    # A killed call may leave results that are not listed; later that is a lost list.
    listed, settled_before = results.listed(store.objects), store.objects.clock() - FRESH
    for recorded, key in results.every(store.objects):
        what = results.fault(store.path(key), recorded) if is_read else None
        if what is not None:
            yield Problem(recorded.run, key, what)
        entry = store.objects.stat(key)
        if key not in listed and entry is not None and entry.modified < settled_before:
            yield Problem(recorded.run, key, f"not listed under {layout.RECORDED}")
    for recorded, key in results.every(store.objects, parsed=results.parse_rollup) if is_read else ():
        if results.fault(store.path(key), recorded) is not None:
            yield Problem(recorded.run, key, "damaged roll-up: its result is read in its place")
    for key, names in results.lists(store.objects):
        if isinstance(names, str):
            yield Problem("", key, f"list of recorded results {names}")
    for key, acknowledgement in results.acknowledged(store.objects):
        if isinstance(acknowledgement, str):
            yield Problem("", key, f"acknowledgement {acknowledgement}")
    for lost, key in results.missing(store.objects, frozenset(_sources(store))):
        if lost is None:
            yield Problem("", key, "acknowledgement missing")
        else:
            what = hints.fill("recorded result missing: {} restores it", hints.record())
            yield Problem(lost.run, key, what)


def _sources(store: Versions) -> Iterator[tuple[str, str]]:
    """Run key and source of the versions whose results are kept; unreadable ones were reported before."""
    for removed in store.kept():
        yield run_key(removed.run), removed.source
    for run in store.run_keys():
        with suppress(TwError):
            version = store.newest(run)
            if version is not None:
                yield run, version.source


def stored_faults(
    store: Versions, files: Mapping[str, TableFile], deep: bool = True
) -> dict[str, str | None]:
    """Each key with the problem of its file, or None; in an object store only sizes count unless `deep`."""
    if not store.is_remote:
        return {key: content_fault(store.path(key), file.bytes, file.sha256) for key, file in files.items()}
    sizes = store.stored_sizes(files)
    faults = {key: _size_fault(sizes.get(key), file) for key, file in files.items()}
    intact = [files[key] for key, what in faults.items() if what is None] if deep else []
    return faults | store.files.fetch(intact, again=True)


def _size_fault(size: int | None, file: TableFile) -> str | None:
    if size is None:
        return "file missing"
    return None if size == file.bytes else f"{size} bytes, {file.bytes} were written"


def _metadata(store: Versions, run: str, path: str, file: TableFile) -> Iterator[Problem]:
    """The number of rows, and the minimum and maximum of `run_id` and `rank`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(store.path(path))
    except (pa.ArrowException, OSError) as error:
        yield Problem(run, path, f"not a Parquet file: {error}")
        return
    if metadata.num_rows != file.file_rows:
        yield Problem(run, path, f"{metadata.num_rows} rows, {file.file_rows} were written")
    ranks, runs = _range(metadata, "rank"), _range(metadata, "run_id")
    if ranks is not None and not file.first_rank <= ranks[0] <= ranks[1] <= file.last_rank:
        yield Problem(run, path, f"has rows of rank {ranks[0]} to {ranks[1]}")
    if runs is not None and {run_key(run_id) for run_id in runs} != {run_key(run)}:
        yield Problem(run, path, f"has rows of run {runs[0]}")


def _range(metadata: Any, column: str) -> tuple[Any, Any] | None:
    """The minimum and maximum of a column over all row groups, None if they are not known."""
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    if column not in names:
        return None
    index = names.index(column)
    stats = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
    if not stats or not all(bounds is not None and bounds.has_min_max for bounds in stats):
        return None
    return min(bounds.min for bounds in stats), max(bounds.max for bounds in stats)
