"""From staged Parquet files to units: packed, fsynced, renamed, and told in a manifest each."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tracewarehouse.errors import WarehouseError
from tracewarehouse.store import layout, pack
from tracewarehouse.store.blobs import Blobs
from tracewarehouse.store.codec import decode_unit, dump, encode_unit
from tracewarehouse.store.model import Changes, RunVersion, Staged, TableFile, Unit, Waiting


def now() -> str:
    """The time in UTC, to the microsecond, in a form that sorts."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def commit(blobs: Blobs, staged: Sequence[Staged]) -> tuple[Unit, ...]:
    """Makes units of what is staged: first all their files, then their manifests.

    Small neighbours share files. Nothing is visible to readers before a publish.
    """
    attempts = {(one.run, one.rank): secrets.token_hex(4) for one in staged}
    if len(attempts) != len(staged):
        raise ValueError("one call commits each rank of a run once")
    files: dict[tuple[str, int], list[TableFile]] = {(one.run, one.rank): list(one.kept) for one in staged}
    moves: dict[str, Path] = {}
    for group in pack.groups(staged):
        first, table = group[0].staged, group[0].table
        name = f"{first.uid}-{attempts[first.run, first.rank]}"
        key = layout.table_file(table.table, table.version, first.run, first.rank, name)
        moves[key] = pack.one_file(group)
        for part, file in zip(group, _table_files(group, key, moves[key]), strict=True):
            files[part.staged.run, part.staged.rank].append(file)
    made = tuple(_unit(one, attempts[one.run, one.rank], files[one.run, one.rank]) for one in staged)
    _put(blobs, moves, made)
    return made


def _put(blobs: Blobs, moves: Mapping[str, Path], made: Sequence[Unit]) -> None:
    """Data first, manifests second; a full disk is not left fuller."""
    manifests = {layout.unit(unit.run, unit.rank, unit.name): encode_unit(unit) for unit in made}
    try:
        blobs.adopt(moves)
        blobs.put(manifests)
    except OSError:
        blobs.delete([*manifests, *moves])
        raise


def _table_files(group: Sequence[pack.Part], key: str, path: Path) -> Iterator[TableFile]:
    """Each rank's share of the file."""
    digest, size = sha256(path), path.stat().st_size
    rows = sum(part.table.rows for part in group)
    for part in group:
        table = part.table
        yield TableFile(table.table, table.version, key, table.rows, size, digest, rows, len(group))


def _unit(staged: Staged, attempt: str, files: Sequence[TableFile]) -> Unit:
    return Unit(
        run=staged.run,
        rank=staged.rank,
        uid=staged.uid,
        attempt=attempt,
        digest=staged.digest,
        text_bytes=staged.text_bytes,
        reader=staged.reader,
        status=staged.status,
        committed_at=now(),
        files=tuple(files),
        facts=dict(staged.facts),
    )


def read(blobs: Blobs, run: str, rank: int, name: str) -> Unit:
    """A unit by its manifest; raises WarehouseError where that is missing or damaged."""
    key = layout.unit(run, rank, name)
    try:
        return decode_unit(blobs.get(key), str(blobs.path(key)))
    except FileNotFoundError as error:
        raise WarehouseError(f"{blobs.path(key)}: unit manifest missing", "ingest the rank again") from error


def names(blobs: Blobs, run: str, rank: int) -> tuple[str, ...]:
    """`<uid>-<attempt>` of every manifest of a rank, published or not."""
    found = blobs.list(layout.units(run, rank))
    return tuple(sorted(name.removesuffix(".json") for name in found if name.endswith(".json")))


@dataclass(frozen=True)
class Marker:
    """That a unit waits: the name of its marker says which unit, its content for what."""

    rank: int
    name: str
    expected_ranks: int
    replace: bool
    labels: Mapping[str, str | None]


def mark(blobs: Blobs, changes: Changes) -> None:
    """Marks a call's units as waiting for the others of their run; nothing without `expected_ranks`."""
    if changes.expected_ranks is not None:
        said = {"expected_ranks": changes.expected_ranks, "replace": changes.replace}
        data = dump(said | {"labels": dict(changes.labels)}).encode()
        blobs.put({layout.marker(unit.run, unit.rank, unit.name): data for unit in changes.units})


def unmark(blobs: Blobs, run: str, units: Sequence[Unit]) -> None:
    """Takes the markers of units away."""
    blobs.delete([layout.marker(run, unit.rank, unit.name) for unit in units])


def markers(blobs: Blobs, run: str) -> tuple[Marker, ...]:
    """The markers of a run, also of units that were published while a call died."""
    found = []
    for file in sorted(blobs.list(layout.waiting(run))):
        rank, _, name = file.removesuffix(".json").partition("-")
        # Another call may publish and take the marker away at any moment.
        with suppress(FileNotFoundError):
            said = json.loads(blobs.get(f"{layout.waiting(run)}/{file}"))
            found.append(Marker(int(rank), name, **said))
    return tuple(found)


def settled(history: Sequence[RunVersion]) -> frozenset[str]:
    """Names of the units that some version has held or some removal has dropped."""
    held = {unit.name for version in history for unit in version.units}
    return frozenset(held.union(*(version.dropped for version in history)))


def waiting(blobs: Blobs, run: str, marker: Marker) -> Waiting:
    """The unit behind a marker."""
    unit = read(blobs, run, marker.rank, marker.name)
    return Waiting(unit, marker.expected_ranks, marker.replace, marker.labels)


def all_names(blobs: Blobs, run: str) -> Iterator[tuple[int, str]]:
    """Rank and `<uid>-<attempt>` of every manifest of a run."""
    for folder in sorted(blobs.list(layout.manifests(run))):
        if folder.isdecimal():
            rank = int(folder)
            yield from ((rank, name) for name in names(blobs, run, rank))
