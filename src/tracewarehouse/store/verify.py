"""Whether what is stored is what was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tracewarehouse.errors import TwError
from tracewarehouse.store import layout, results, units
from tracewarehouse.store.codec import decode_version
from tracewarehouse.store.model import Problem, RunVersion, TableFile, Unit

if TYPE_CHECKING:
    from tracewarehouse.store.store import Store


def verify(store: Store) -> list[Problem]:
    """Every problem of every run: numbering, versions, manifests, and each Parquet file once."""
    store.forget()
    keys = sorted({*store.keys(layout.RUNS), *store.keys(layout.UNITS)})
    return [*(problem for key in keys for problem in _run(store, key)), *_kept(store), *_results(store)]


def _kept(store: Store) -> Iterator[Problem]:
    """The versions that recorded results of removed runs are of."""
    for run in store.keys(layout.KEPT):
        for name in sorted(store.blobs.list(f"{layout.KEPT}/{run}")):
            key = f"{layout.KEPT}/{run}/{name}"
            try:
                decode_version(store.blobs.get(key), str(store.path(key)))
            except TwError as error:
                yield Problem(run, key, error.message)


def _results(store: Store) -> Iterator[Problem]:
    for recorded, key in results.every(store.blobs):
        what = results.fault(store.path(key), recorded)
        if what is not None:
            yield Problem(recorded.run, key, what)


def _run(store: Store, run: str) -> Iterator[Problem]:
    yield from _numbering(store, run)
    files: dict[str, TableFile] = {}
    published: dict[str, Unit] = {}
    for number in store.versions(run):
        try:
            version = store.get(run, number)
        except TwError as error:
            yield Problem(run, layout.version(run, number), error.message)
            continue
        if (layout.versions(version.run), version.number) != (layout.versions(run), number):
            yield Problem(run, layout.version(run, number), f"says it is {version.run}@v{version.number}")
        published |= {unit.name: unit for unit in version.units}
        yield from _agreement(version, files)
    yield from _manifests(store, run, published, files)
    for path, file in sorted(files.items()):
        yield from _file(store, run, path, file)


def _numbering(store: Store, run: str) -> Iterator[Problem]:
    """`clean` takes the oldest versions away; a gap between those that are left is damage."""
    numbers = store.versions(run)
    present = set(numbers)
    for number in range(numbers[0], numbers[-1]) if numbers else ():
        if number not in present:
            yield Problem(run, layout.version(run, number), "version missing")


def _agreement(version: RunVersion, files: dict[str, TableFile]) -> Iterator[Problem]:
    """What the version itself says; adds its files to `files`."""
    place = layout.version(version.run, version.number)
    if list(version.ranks) != sorted(set(version.ranks)):
        yield Problem(version.run, place, "a rank stands twice or out of order")
    yield from _shares(version, place)
    for unit in version.units:
        files |= {file.path: file for file in unit.files}


def _shares(version: RunVersion, place: str) -> Iterator[Problem]:
    """The ranks of a packed file that are all there add up to its rows."""
    rows: dict[str, list[int]] = {}
    for unit in version.units:
        for file in unit.files:
            rows.setdefault(file.path, [file.file_rows, file.file_ranks]).append(file.rows)
    for path, (file_rows, file_ranks, *shares) in rows.items():
        whole = len(shares) == file_ranks
        if sum(shares) > file_rows or (whole and sum(shares) != file_rows):
            yield Problem(
                version.run, place, f"{path}: shares of {sum(shares)} rows in a file of {file_rows}"
            )


def _manifests(
    store: Store, run: str, published: Mapping[str, Unit], files: dict[str, TableFile]
) -> Iterator[Problem]:
    """Every manifest parses and agrees with the versions, and every published unit has one."""
    missing = dict(published)
    for rank, name in units.all_names(store.blobs, run):
        stated = missing.pop(name, None)
        try:
            unit = units.read(store.blobs, run, rank, name)
        except TwError as error:
            yield Problem(run, layout.unit(run, rank, name), error.message)
            continue
        files |= {file.path: file for file in unit.files}
        if stated is not None and unit != stated:
            yield Problem(run, layout.unit(run, rank, name), "differs from the published version")
    for unit in missing.values():
        yield Problem(run, layout.unit(run, unit.rank, unit.name), "unit manifest missing")


def _file(store: Store, run: str, path: str, file: TableFile) -> Iterator[Problem]:
    """Presence, size, rows of the footer and checksum of one Parquet file."""
    found = store.blobs.stat(path)
    if found is None:
        yield Problem(run, path, "file missing")
    elif found.bytes != file.bytes:
        yield Problem(run, path, f"{found.bytes} bytes, {file.bytes} were written")
    elif units.sha256(store.path(path)) != file.sha256:
        yield Problem(run, path, "checksum differs: the content changed after it was written")
    else:
        yield from _rows(store, run, path, file)


def _rows(store: Store, run: str, path: str, file: TableFile) -> Iterator[Problem]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_metadata(store.path(path)).num_rows
    except (pa.ArrowException, OSError) as error:
        yield Problem(run, path, f"no Parquet file: {error}")
    else:
        if rows != file.file_rows:
            yield Problem(run, path, f"{rows} rows, {file.file_rows} were written")
