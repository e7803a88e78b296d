"""The run catalog: the newest version of each run in brief, so that a list of runs reads few objects.

It only saves requests: readers take an entry for a version that they have just listed, and read the versions
that the catalog lacks. Writing commands write a new one from time to time, reading commands never.
"""

from __future__ import annotations

import gzip
import json
import secrets
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from tracewarehouse.errors import SchemaVersionError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, check_understood, sealed, unsealed
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import Brief, Json
from tracewarehouse.storage.objects import Objects, names_in

# Raised when rows of the table `runs` are computed in another way: catalogs with others are not used.
ROWS = 1
# `clean` keeps this many; readers try as many if the newest is damaged.
KEPT = 3
_COPY = "runs.json.gz"


class Newest(Struct, frozen=True):
    """The newest version of a run as listed: its number, and the size of its object (None if it is lost)."""

    number: int
    bytes: int | None


class Entry(Struct, frozen=True):
    """A version in a catalog: its brief, the size of its object, and its row of `runs` (None if removed)."""

    brief: Brief
    bytes: int
    row: Json = None

    def is_of(self, newest: Newest) -> bool:
        """Whether it describes the version that was listed."""
        return (self.brief.number, self.bytes) == (newest.number, newest.bytes)


class IndexedRuns(Struct, frozen=True):
    """A catalog with its number, 0 if there is none; entries by run key. `rows`: see ROWS."""

    number: int = 0
    entries: Mapping[str, Entry] = field(default_factory=dict)
    rows: int = ROWS

    def of(self, listed: Mapping[str, Newest]) -> dict[str, Entry]:
        """The entries of these versions."""
        if self.rows != ROWS:
            return {}
        found = ((run, self.entries.get(run)) for run in listed)
        return {run: entry for run, entry in found if entry is not None and entry.is_of(listed[run])}


def numbers(objects: Objects) -> list[int]:
    """The numbers of the stored catalogs, newest first."""
    found = (layout.catalog_number(name) for name in names_in(objects, layout.CATALOG))
    return sorted((number for number in found if number is not None), reverse=True)


def read(objects: Objects) -> IndexedRuns:
    """The newest intact catalog, with the number of the newest; an empty one if there is none."""
    stored = numbers(objects)
    for number in stored[:KEPT]:
        with suppress(FileNotFoundError, ValueError, SchemaVersionError):
            catalog = decode(objects.get(layout.catalog(number)))
            return IndexedRuns(stored[0], catalog.entries, catalog.rows)
    return IndexedRuns(max(stored, default=0))


def write(objects: Objects, number: int, entries: Mapping[str, Entry]) -> bool:
    """Writes a catalog under a number, unless another command did."""
    return objects.put_if_absent(layout.catalog(number), encode(entries))


def encode(entries: Mapping[str, Entry]) -> bytes:
    """A catalog as compressed, sealed JSON; the bytes are unique to the call."""
    listed = [
        {"brief": {**asdict(one.brief), "labels": dict(one.brief.labels)}, "bytes": one.bytes, "row": one.row}
        for _, one in sorted(entries.items())
    ]
    fields: dict[str, Any] = {"format": FORMAT, "must_understand": [], "rows": ROWS}
    return gzip.compress(sealed(fields | {"nonce": secrets.token_hex(16), "runs": listed}), 6, mtime=0)


def decode(data: bytes) -> IndexedRuns:
    """The catalog in these bytes; raises ValueError if it is damaged."""
    try:
        fields = unsealed(gzip.decompress(data))
        check_understood(fields, layout.CATALOG)
        entries = (_entry(each) for each in fields["runs"])
        return IndexedRuns(0, {run_key(one.brief.run): one for one in entries}, fields["rows"])
    except (OSError, EOFError, zlib.error, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"damaged run catalog: {error}") from error


def _entry(fields: Mapping[str, Any]) -> Entry:
    known = {name: fields["brief"][name] for name in Brief.__struct_fields__}
    return Entry(Brief(**known), fields["bytes"], fields["row"])


def old(objects: Objects) -> Iterator[str]:
    """The keys of the catalogs that readers no longer use."""
    return (layout.catalog(number) for number in numbers(objects)[KEPT:])


def delete_all(objects: Objects) -> None:
    """Deletes every catalog, so that none holds what was taken out of the versions."""
    objects.delete([layout.catalog(number) for number in numbers(objects)])


# The copy of a user, for the versions that no stored catalog has yet


def read_copy(folder: Path) -> IndexedRuns:
    """The catalog that this user's last list of runs left in the folder of local copies."""
    with suppress(OSError, ValueError, SchemaVersionError):
        return decode((folder / _COPY).read_bytes())
    return IndexedRuns()


def write_copy(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Replaces the copy; a full disk only costs time."""
    part = folder / f"{_COPY}.{secrets.token_hex(8)}.part"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            part.write_bytes(encode(entries))
            part.chmod(0o600)
            part.replace(folder / _COPY)
        finally:
            part.unlink(missing_ok=True)


def delete_copy(folder: Path) -> None:
    """Deletes the copy."""
    with suppress(OSError):
        (folder / _COPY).unlink(missing_ok=True)
