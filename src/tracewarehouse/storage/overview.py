"""The newest versions of all runs: one listing, the run catalog, and the versions that the catalog lacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from tracewarehouse.errors import TwError
from tracewarehouse.storage import layout, objects, run_catalog, run_list
from tracewarehouse.storage.model import Brief, Json, Problem, RunVersion, UnreadableRun
from tracewarehouse.storage.run_catalog import Entry, Newest, RunCatalog

if TYPE_CHECKING:
    from tracewarehouse.storage.versions import Versions

# Up to this many versions are read directly: listing and reading the catalog takes two requests.
_FEW = 2
# A writing command writes a new catalog when more versions than this are newer.
_NEWER = 32

Describe: TypeAlias = Callable[[RunVersion], Json]


class Overview:
    """What is listed of all runs. The catalog is read once: an old one only costs requests."""

    def __init__(self, store: Versions) -> None:
        self.store = store
        self._catalog: RunCatalog | None = None
        self._copy: RunCatalog | None = None

    def listed(self, prefix: str = "") -> dict[str, Newest]:
        """Run key → its newest version, tombstones included."""
        stored, prefix = self.store.objects, prefix.lower()
        # Receipts first: a version that is published meanwhile is not taken for lost.
        receipts = () if self.store.is_remote else tuple(stored.walk(f"{layout.RECEIPTS}/{prefix}"))
        return newest_versions(stored.walk(f"{layout.RUNS}/{prefix}"), receipts)

    def briefs(self, prefix: str = "") -> tuple[Brief, ...]:
        """The newest version of each run in brief, by run key; without removed and unreadable runs."""
        listed = self.listed(prefix)
        found = {run: entry.brief for run, entry in self._cataloged(listed).items()}
        for run, data in self._read(listed, found):
            with suppress(TwError):
                found[run] = self.store.brief_of(run, listed[run].number, data)
        return tuple(found[run] for run in sorted(found) if not found[run].tombstone)

    def versions(self, prefix: str = "") -> tuple[tuple[RunVersion, ...], tuple[UnreadableRun, ...]]:
        """The newest version of each run by run key, without removed runs; and the runs that are damaged."""
        listed = self.listed(prefix)
        found = [self._version(run, listed[run], data) for run, data in self._read(listed)]
        versions = tuple(one for one in found if isinstance(one, RunVersion) and not one.tombstone)
        return versions, tuple(one for one in found if isinstance(one, UnreadableRun))

    def entries(self, describe: Describe) -> tuple[dict[str, Entry], tuple[UnreadableRun, ...]]:
        """Each run with its row as `describe` gives it, removed runs included; and the damaged runs."""
        found, unreadable = self._entries(self.listed(), describe)
        return found, unreadable

    def update_catalog(self, describe: Describe, listed: Mapping[str, Newest] | None = None) -> bool:
        """Writes a new catalog if many versions are newer than the last; True if this call wrote one.

        `listed`: what `listed` returns, if it was called already.
        """
        listed = self.listed() if listed is None else listed
        if len(listed) <= _NEWER:
            return False
        catalog = self._catalog = run_catalog.read(self.store.objects)
        if catalog.rows > run_catalog.ROWS or len(listed) - len(catalog.of(listed)) <= _NEWER:
            return False
        found, _ = self._entries(listed, describe)
        return run_catalog.write(self.store.objects, catalog.number + 1, found)

    def _entries(
        self, listed: Mapping[str, Newest], describe: Describe
    ) -> tuple[dict[str, Entry], tuple[UnreadableRun, ...]]:
        known = self._cataloged(listed)
        found, unreadable = dict(known), []
        for run, data in self._read(listed, known):
            version = self._version(run, listed[run], data)
            if isinstance(version, UnreadableRun):
                unreadable.append(version)
            else:
                row = None if version.tombstone else describe(version)
                found[run] = Entry(version.brief, listed[run].bytes or 0, row)
        if self.store.is_remote and len(found) > max(len(known), _FEW):
            run_catalog.write_copy(self.store.folder, found)
        return {run: found[run] for run in sorted(found)}, tuple(unreadable)

    def _cataloged(self, listed: Mapping[str, Newest]) -> dict[str, Entry]:
        """The entries of the versions that the catalog or the user's copy of an earlier list has."""
        found: dict[str, Entry] = {}
        if self.store.is_remote:
            self._copy = self._copy or run_catalog.read_copy(self.store.folder)
            found = self._copy.of(listed)
        if len(listed) - len(found) > _FEW:
            self._catalog = self._catalog or run_catalog.read(self.store.objects)
            found |= self._catalog.of(listed)
        return found

    def _version(self, run: str, newest: Newest, data: bytes | None) -> RunVersion | UnreadableRun:
        try:
            return self.store.newest_of(run, newest.number, data)
        except TwError as error:
            return self.store.unreadable_run(run, newest.number, error)

    def _read(
        self, listed: Mapping[str, Newest], known: Collection[str] = ()
    ) -> Iterator[tuple[str, bytes | None]]:
        """The bytes of the newest version of each run that is not known; None if they were read before."""
        todo = [run for run in sorted(listed) if run not in known]
        cached = {run for run in todo if self.store.is_cached(run, listed[run].number)}
        keys = {layout.version(run, listed[run].number): run for run in todo if run not in cached}
        yield from ((run, None) for run in sorted(cached))
        yield from ((keys[key], data) for key, data in self.store.objects.get_many(keys))


def catalog_problems(store: Versions) -> Iterator[Problem]:
    """The catalogs that readers may use and that are damaged, or differ from a version that they describe."""
    listed = store.overview.listed()
    for number in run_catalog.numbers(store.objects)[: run_catalog.KEPT]:
        key = layout.catalog(number)
        try:
            entries = run_catalog.decode(store.objects.get(key)).of(listed)
        except FileNotFoundError:  # a clean just deleted it
            continue
        except (ValueError, TwError) as error:
            yield Problem("", key, str(error))
            continue
        for run, entry in entries.items():
            with suppress(TwError):  # a damaged version is reported by itself
                if store.brief_of(run, entry.brief.number) != entry.brief:
                    yield Problem("", key, f"differs from {entry.brief.run}@v{entry.brief.number}")
                    break


def list_problems(store: Versions) -> Iterator[Problem]:
    """The list of versions for readers over HTTP, if it is damaged; a warehouse may have none."""
    with suppress(FileNotFoundError):
        try:
            run_list.decode(store.objects.get(layout.LATEST), "list of versions")
        except TwError as error:
            yield Problem("", layout.LATEST, error.message)


def newest_versions(
    versions: Iterable[objects.Entry], receipts: Iterable[objects.Entry] = ()
) -> dict[str, Newest]:
    """Run key → its newest version by the listed objects, also one of which only the receipt is left."""
    found: dict[str, Newest] = {}
    for run, number, _ in _numbered(receipts, layout.RECEIPTS, layout.receipt_number):
        if run not in found or number > found[run].number:
            found[run] = Newest(number, None)
    for run, number, size in _numbered(versions, layout.RUNS, layout.version_number):
        if run not in found or number >= found[run].number:
            found[run] = Newest(number, size)
    return found


def _numbered(
    listed: Iterable[objects.Entry], folder: str, number_in: Callable[[str], int | None]
) -> Iterator[tuple[str, int, int]]:
    for entry in listed:
        run, _, name = entry.key.removeprefix(f"{folder}/").partition("/")
        number = number_in(name)
        if number is not None and layout.is_run_key(run):
            yield run, number, entry.bytes
