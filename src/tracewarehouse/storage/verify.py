"""Verify: compares the stored files with what was written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tracewarehouse import hints
from tracewarehouse.errors import TwError
from tracewarehouse.storage import cleaned, layout, manifests, markers, receipts, results
from tracewarehouse.storage.copies import FRESH
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import Problem, RankSource, RunVersion, TableFile
from tracewarehouse.storage.objects import Entry, names_in
from tracewarehouse.storage.parquet_file import footer_bytes, sha256
from tracewarehouse.storage.receipts import Receipt
from tracewarehouse.storage.versions import Versions, catalog_problems, list_problems

_OF_RUNS = (layout.RUNS, layout.SOURCES, layout.RECEIPTS, layout.WAITING)


def verify(store: Versions, deep: bool = False) -> list[Problem]:
    """Every problem of every run: numbering, versions, receipts, manifests, and each Parquet file once.

    Of files in an object store only the sizes, unless `deep`, which downloads them all.
    """
    store.forget()
    keys = sorted({key for folder in _OF_RUNS for key in store.keys(folder)})
    return [
        *(problem for key in keys for problem in _Run(store, key, deep).problems()),
        *_kept(store),
        *_results(store, deep),
        *_acknowledgements(store),
        *catalog_problems(store),
        *list_problems(store),
    ]


class _Run(Struct):
    """One run while it is verified."""

    store: Versions
    run: str
    deep: bool = False
    # Key → a stored file that a version or manifest names.
    files: dict[str, TableFile] = field(default_factory=dict)
    # Key → the versions that hold the file.
    holders: dict[str, list[int]] = field(default_factory=dict)
    published: dict[str, RankSource] = field(default_factory=dict)
    receipts: dict[int, Receipt] = field(default_factory=dict)
    # Versions that `clean` deleted.
    cleaned: frozenset[int] = frozenset()

    def problems(self) -> Iterator[Problem]:
        """The problems of the run."""
        damaged_receipts = list(self._read_receipts())
        known = cleaned.read(self.store.objects, self.run)
        self.cleaned = known.versions
        yield from (self._problem(key, what) for key, what in known.faults)
        yield from self._numbering()
        for number in self.store.versions(self.run):
            yield from self._version(number)
        yield from damaged_receipts
        yield from self._receipts()
        yield from self._manifests()
        yield from self._markers()
        yield from self._files()

    def _files(self) -> Iterator[Problem]:
        files = {path: file for path, file in sorted(self.files.items()) if not self._is_settled(path)}
        faults = stored_faults(self.store, files, self.deep)
        for path, file in files.items():
            if (what := faults[path]) is not None:
                yield self._problem(path, what)
            elif self.deep or not self.store.is_remote:
                yield from _metadata(self.store, self.run, path, file)

    def _problem(self, key: str, what: str) -> Problem:
        return Problem(self.run, key, what)

    def _read_receipts(self) -> Iterator[Problem]:
        for name in names_in(self.store.objects, layout.receipts(self.run)):
            number = layout.receipt_number(name)
            if number is None:
                continue
            try:
                receipt = receipts.read(self.store.objects, self.run, number)
            except ValueError as error:
                yield self._problem(layout.receipt(self.run, number), f"damaged receipt: {error}")
                continue
            if receipt is not None:
                self.receipts[number] = receipt

    def _numbering(self) -> Iterator[Problem]:
        """`clean` deletes versions, and leaves a record; any other gap is damage."""
        numbers = self.store.versions(self.run)
        known = (*numbers, *self.receipts)
        for number in range(min(known), max(known) + 1) if known else ():
            receipt = self.receipts.get(number)
            was_given_up = receipt is not None and receipt.is_lost
            if number not in numbers and number not in self.cleaned and not was_given_up:
                is_gap = numbers and numbers[0] < number < numbers[-1]
                what = "version missing" if is_gap else "version missing: its receipt is there"
                yield self._problem(layout.version(self.run, number), what)

    def _version(self, number: int) -> Iterator[Problem]:
        key = layout.version(self.run, number)
        try:
            version = self.store.decoded(self.run, number)
        except TwError as error:
            yield self._problem(key, error.message)
            return
        if (layout.versions(version.run), version.number) != (layout.versions(self.run), number):
            yield self._problem(key, f"says it is {version.run}@v{version.number}")
        yield from self._agreement(version)
        yield from self._receipt_of(number)

    def _receipt_of(self, number: int) -> Iterator[Problem]:
        """A version may lack its receipt after a kill, until the next publish writes it.

        `clean` deletes receipts before their versions, and leaves a record of both first.
        """
        key = layout.receipt(self.run, number)
        objects = self.store.objects
        if objects.stat(key) is not None or number in self.cleaned:
            return
        entry = objects.stat(layout.version(self.run, number))
        is_young = entry is not None and objects.clock() - entry.modified < FRESH
        if not is_young or number < max(self.receipts, default=0):
            yield self._problem(key, "receipt missing")

    def _receipts(self) -> Iterator[Problem]:
        """Each receipt matches its version."""
        for number, receipt in self.receipts.items():
            key = layout.version(self.run, number)
            if receipt.sha256 is None or self.store.objects.stat(key) is None:
                continue
            if hashlib.sha256(self.store.objects.get(key)).hexdigest() != receipt.sha256:
                yield self._problem(key, "differs from its receipt")

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
                self.holders.setdefault(file.path, []).append(version.number)
                rows.setdefault(file.path, [file.file_rows, file.file_ranks]).append(file.rows)
        # The shares of a packed file sum to its rows if all its ranks are present.
        for path, (file_rows, file_ranks, *shares) in rows.items():
            is_complete = len(shares) == file_ranks
            if sum(shares) > file_rows or (is_complete and sum(shares) != file_rows):
                text = f"{path}: shares of {sum(shares)} rows in a file of {file_rows}"
                yield self._problem(place, text)

    def _is_settled(self, path: str) -> bool:
        """Whether a repair found the file to be lost, and all versions that hold it say so."""
        holders = self.holders.get(path, [])
        return bool(holders) and all(
            number in self.receipts and path in self.receipts[number].lost_files for number in holders
        )

    def _manifests(self) -> Iterator[Problem]:
        """Every manifest is intact and agrees with the versions, and every published source has one."""
        missing: dict[str, dict[str, RankSource]] = {}
        for source in self.published.values():
            missing.setdefault(source.manifest, {})[source.name] = source
        for name in manifests.names(self.store.objects, self.run):
            key = layout.manifest(self.run, name.text)
            stated = missing.pop(name.text, {})
            try:
                sources = manifests.read(self.store.objects, self.run, name.text).sources
            except TwError as error:
                yield self._problem(key, error.message)
                continue
            for source in sources:
                self.files |= {file.path: file for file in source.files}
                if stated.pop(source.name, source) != source:
                    yield self._problem(key, f"rank {source.rank} differs from the published version")
            for source in stated.values():
                yield self._problem(key, f"lacks rank {source.rank}, which was published")
        for name_, sources_ in missing.items():
            ranks = ", ".join(str(source.rank) for source in sources_.values())
            yield self._problem(layout.manifest(self.run, name_), f"manifest missing, of rank {ranks}")

    def _markers(self) -> Iterator[Problem]:
        """Every marker is intact, and the manifest that it names holds its source."""
        settled = markers.held_or_dropped(self.store.readable(self.run))
        for one in markers.every(self.store.objects, self.run):
            if one.value is not None and one.value.name in settled:
                continue
            for key, what in one.problems:
                yield self._problem(key, f"marker of a pending rank {what}")
            if one.value and not markers.pending_sources(self.store.objects, self.run, [one.value]):
                key = layout.manifest(self.run, one.value.manifest)
                if self.store.objects.stat(key) is None:
                    yield self._problem(key, f"manifest missing, of pending rank {one.value.rank}")
                yield self._problem(one.key, f"its manifest is lost or damaged: {one.value.manifest}")


def _kept(store: Versions) -> Iterator[Problem]:
    """Problems of the kept versions of removed runs."""
    for one in store.kept_versions():
        for key, what in one.problems:
            yield Problem(layout.run_of(key) or "", key, f"kept version {what}")


def _acknowledgements(store: Versions) -> Iterator[Problem]:
    for one in results.acknowledged(store.objects):
        for key, what in one.problems:
            yield Problem("", key, f"acknowledgement {what}")


def _results(store: Versions, deep: bool) -> Iterator[Problem]:
    for recorded, key in results.every(store.objects) if deep or not store.is_remote else ():
        what = results.fault(store.path(key), recorded)
        if what is not None:
            yield Problem(recorded.run, key, what)
    for recorded, key in results.rollups_below(store.objects) if deep or not store.is_remote else ():
        if results.fault(store.path(key), recorded) is not None:
            yield Problem(recorded.run, key, "damaged roll-up: its result is read in its place")
    for one in results.lists(store.objects):
        for key, what in one.problems:
            yield Problem("", key, f"list of recorded results {what}")
    for recorded, key in results.missing(store.objects, frozenset(_sources(store))):
        yield Problem(
            recorded.run, key, hints.fill("recorded result missing: {} restores it", hints.record())
        )
    # A killed call may leave results that are not listed; later that is a lost list.
    listed = results.listed(store.objects)
    old = store.objects.clock() - timedelta(seconds=FRESH.total_seconds())
    for recorded, key in results.every(store.objects):
        entry = store.objects.stat(key)
        if key not in listed and entry is not None and entry.modified < old:
            yield Problem(recorded.run, key, f"not listed under {layout.RECORDED}")


def _sources(store: Versions) -> Iterator[tuple[str, str]]:
    """Run key and source of the versions whose results are kept; unreadable ones were reported before."""
    for kept in store.kept():
        yield run_key(kept.run), kept.source
    for run in store.keys(layout.RUNS):
        try:
            version = store.newest(run)
        except TwError:
            continue
        if version is not None:
            yield run, version.source


def file_fault(path: Path, file: TableFile) -> str | None:
    """The problem of a Parquet file: missing, of another size, or with other bytes than were written."""
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return "file missing"
    if size != file.bytes:
        return f"{size} bytes, {file.bytes} were written"
    if sha256(path) != file.sha256:
        return "checksum differs: the content changed after it was written"
    return None if _footer_agrees(path, file) else "the footer is not the one that was written"


def stored_faults(
    store: Versions, files: Mapping[str, TableFile], deep: bool = True
) -> dict[str, str | None]:
    """Each key with the problem of its file, or None; in an object store only sizes count unless `deep`."""
    if not store.is_remote:
        return {key: file_fault(store.path(key), file) for key, file in files.items()}
    found = {key: _size_fault(entry, files[key]) for key, entry in store.objects.stat_many(files)}
    intact = [files[key] for key, what in found.items() if what is None] if deep else []
    return found | store.fetch(intact, again=True)


def _size_fault(entry: Entry | None, file: TableFile) -> str | None:
    if entry is None:
        return "file missing"
    return None if entry.bytes == file.bytes else f"{entry.bytes} bytes, {file.bytes} were written"


def _footer_agrees(path: Path, file: TableFile) -> bool:
    try:
        footer = footer_bytes(path)
    except TwError:
        return False
    return (len(footer), hashlib.sha256(footer).hexdigest()) == (file.footer_bytes, file.footer_sha256)


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
    if runs is not None and {run_key(each) for each in runs} != {run_key(run)}:
        yield Problem(run, path, f"has rows of run {runs[0]}")


def _range(metadata: Any, column: str) -> tuple[Any, Any] | None:
    """The minimum and maximum of a column over all row groups, None if they are not known."""
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    if column not in names:
        return None
    at = names.index(column)
    found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    if not found or not all(each is not None and each.has_min_max for each in found):
        return None
    return min(each.min for each in found), max(each.max for each in found)
