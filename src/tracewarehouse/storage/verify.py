"""Verify: compares the stored files with what was written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.errors import TwError
from tracewarehouse.storage import layout, manifests, results
from tracewarehouse.storage.codec import OldVersion, decode_version, unsealed
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import Problem, RankSource, RunVersion, TableFile
from tracewarehouse.storage.objects import names_in
from tracewarehouse.storage.parquet_file import footer_bytes, sha256
from tracewarehouse.storage.versions import Versions


def verify(store: Versions) -> list[Problem]:
    """Every problem of every run: numbering, versions, receipts, manifests, and each Parquet file once."""
    store.forget()
    keys = sorted({*store.keys(layout.RUNS), *store.keys(layout.SOURCES), *store.keys(layout.RECEIPTS)})
    return [*(problem for key in keys for problem in _run(store, key)), *_kept(store), *_results(store)]


def _kept(store: Versions) -> Iterator[Problem]:
    """Problems of the kept versions of removed runs."""
    for run in store.keys(layout.KEPT):
        for name in names_in(store.objects, f"{layout.KEPT}/{run}"):
            key = f"{layout.KEPT}/{run}/{name}"
            try:
                decode_version(store.objects.get(key), str(store.path(key)))
            except TwError as error:
                yield Problem(run, key, error.message)


def _results(store: Versions) -> Iterator[Problem]:
    for recorded, key in results.every(store.objects):
        what = results.fault(store.path(key), recorded)
        if what is not None:
            yield Problem(recorded.run, key, what)
    for key, listed in results.manifests(store.objects):
        if isinstance(listed, str):
            yield Problem("", key, listed)
    for recorded, key in results.missing(store.objects, frozenset(_sources(store))):
        yield Problem(
            recorded.run, key, hints.fill("recorded result missing: {} restores it", hints.record())
        )


def _sources(store: Versions) -> Iterator[tuple[str, str]]:
    """Run key and source of the versions whose results are kept; unreadable ones were reported before."""
    with suppress(TwError):
        yield from ((run_key(version.run), version.source) for version in store.kept())
    for run in store.keys(layout.RUNS):
        try:
            version = store.newest(run)
        except TwError:
            continue
        if version is not None:
            yield run, version.source


def _run(store: Versions, run: str) -> Iterator[Problem]:
    yield from _numbering(store, run)
    files: dict[str, TableFile] = {}
    published: dict[str, RankSource] = {}
    for number in store.versions(run):
        try:
            version = store.get(run, number)
        except OldVersion:
            continue
        except TwError as error:
            yield Problem(run, layout.version(run, number), error.message)
            continue
        if (layout.versions(version.run), version.number) != (layout.versions(run), number):
            yield Problem(run, layout.version(run, number), f"says it is {version.run}@v{version.number}")
        published |= {source.name: source for source in version.sources}
        yield from _agreement(version, files)
    yield from _receipts(store, run)
    yield from _manifests(store, run, published, files)
    for path, file in sorted(files.items()):
        yield from _file(store, run, path, file)


def _numbering(store: Versions, run: str) -> Iterator[Problem]:
    """`clean` deletes the oldest versions; a gap between the others is damage."""
    numbers = store.versions(run)
    present = set(numbers)
    for number in range(numbers[0], numbers[-1]) if numbers else ():
        if number not in present:
            yield Problem(run, layout.version(run, number), "version missing")


def _receipts(store: Versions, run: str) -> Iterator[Problem]:
    """Each receipt is intact and matches its version. A version may lack one after a kill."""
    numbers = frozenset(store.versions(run))
    for name in names_in(store.objects, layout.receipts(run)):
        number = layout.receipt_number(name)
        if number is None:
            continue
        key = layout.receipt(run, number)
        try:
            receipt = unsealed(store.objects.get(key))
        except ValueError as error:
            yield Problem(run, key, f"damaged receipt: {error}")
            continue
        if number not in numbers:
            gap = number > min(numbers, default=number) and number < max(numbers, default=number)
            if not gap:  # `_numbering` reports gaps
                yield Problem(run, layout.version(run, number), "version missing: its receipt is there")
        elif (
            hashlib.sha256(store.objects.get(layout.version(run, number))).hexdigest()
            != receipt["version_sha256"]
        ):
            yield Problem(run, layout.version(run, number), "differs from its receipt")


def _agreement(version: RunVersion, files: dict[str, TableFile]) -> Iterator[Problem]:
    """Whether the version is consistent; adds its files to `files`."""
    place = layout.version(version.run, version.number)
    order = [(source.rank, source.name) for source in version.sources]
    if order != sorted(set(order)):
        yield Problem(version.run, place, "a source is listed twice or out of order")
    yield from _shares(version, place)
    for source in version.sources:
        files |= {file.path: file for file in source.files}


def _shares(version: RunVersion, place: str) -> Iterator[Problem]:
    """The shares of a packed file sum to its rows if all its ranks are present."""
    rows: dict[str, list[int]] = {}
    for source in version.sources:
        for file in source.files:
            rows.setdefault(file.path, [file.file_rows, file.file_ranks]).append(file.rows)
    for path, (file_rows, file_ranks, *shares) in rows.items():
        whole = len(shares) == file_ranks
        if sum(shares) > file_rows or (whole and sum(shares) != file_rows):
            yield Problem(
                version.run, place, f"{path}: shares of {sum(shares)} rows in a file of {file_rows}"
            )


def _manifests(
    store: Versions, run: str, published: Mapping[str, RankSource], files: dict[str, TableFile]
) -> Iterator[Problem]:
    """Every manifest is intact and agrees with the versions, and every published source has one."""
    missing: dict[str, dict[str, RankSource]] = {}
    for source in published.values():
        missing.setdefault(source.manifest, {})[source.name] = source
    for name in manifests.names(store.objects, run):
        key = layout.manifest(run, name.text)
        stated = missing.pop(name.text, {})
        try:
            sources = manifests.read(store.objects, run, name.text).sources
        except TwError as error:
            yield Problem(run, key, error.message)
            continue
        for source in sources:
            files |= {file.path: file for file in source.files}
            if stated.pop(source.name, source) != source:
                yield Problem(run, key, f"rank {source.rank} differs from the published version")
        for source in stated.values():
            yield Problem(run, key, f"lacks rank {source.rank}, which was published")
    for name_, sources_ in missing.items():
        ranks = ", ".join(str(source.rank) for source in sources_.values())
        yield Problem(run, layout.manifest(run, name_), f"manifest missing, of rank {ranks}")


def _file(store: Versions, run: str, path: str, file: TableFile) -> Iterator[Problem]:
    """Presence, size, checksums and rows of one Parquet file."""
    found = store.objects.stat(path)
    if found is None:
        yield Problem(run, path, "file missing")
    elif found.bytes != file.bytes:
        yield Problem(run, path, f"{found.bytes} bytes, {file.bytes} were written")
    elif sha256(store.path(path)) != file.sha256:
        yield Problem(run, path, "checksum differs: the content changed after it was written")
    elif not _footer_agrees(store.path(path), file):
        yield Problem(run, path, "the footer is not the one that was written")
    else:
        yield from _rows(store, run, path, file)


def _footer_agrees(path: Path, file: TableFile) -> bool:
    try:
        footer = footer_bytes(path)
    except TwError:
        return False
    return (len(footer), hashlib.sha256(footer).hexdigest()) == (file.footer_bytes, file.footer_sha256)


def _rows(store: Versions, run: str, path: str, file: TableFile) -> Iterator[Problem]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_metadata(store.path(path)).num_rows
    except (pa.ArrowException, OSError) as error:
        yield Problem(run, path, f"not a Parquet file: {error}")
    else:
        if rows != file.file_rows:
            yield Problem(run, path, f"{rows} rows, {file.file_rows} were written")
