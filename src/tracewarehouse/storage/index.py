"""The index: the newest version of each run.

An entry per run is the receipt of its newest version: if the version that it names is missing, the run is
damaged, and is not answered from an older one. It is written by the publisher of the version. The list of
all entries, with a row of `runs` for each, only saves reading entries where keys can be listed: an entry that
changed since then is read. On a web server the list is all there is.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, check_understood, checked, fields_of, sealed, unsealed
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import Brief, ManySources, RunVersion

# Raised when rows of the table `runs` are computed in another way: lists with others are not used.
ROWS = 2


class Entry(Struct, frozen=True, omit_defaults=True):
    """The newest version of a run: its number and SHA-256, and what orders and names it.

    Only in the object of the run: the other fields of the version (`head`), and name and commit of each
    source, from which a lost version is written again. Only in the list: the `stamp` of the object, which
    changes with it, and the row of `runs` (None if removed).
    """

    run: str
    number: int
    sha256: str
    labels: Mapping[str, str]
    start_ns: int | None
    ingested_at: str
    tombstone: bool = False
    results_of: tuple[int, ...] = ()
    head: Any = None
    sources: tuple[tuple[str, str], ...] = ()
    stamp: str = ""
    row: Any = None

    @property
    def brief(self) -> Brief:
        """What orders and names the version."""
        return Brief(self.run, self.number, self.labels, self.start_ns, self.ingested_at, self.tombstone)


def entry_of(version: RunVersion, digest: str) -> Entry:
    """The entry of a version whose object has this SHA-256."""
    said = version.summary
    head: dict[str, Any] = fields_of(version, ["sources", "labels", "run", "number"])
    sources: tuple[tuple[str, str], ...] = ()
    if isinstance(version.sources, ManySources):
        head["list"] = msgspec.to_builtins(version.sources.stored)
    else:
        sources = tuple((source.name, source.commit) for source in version.sources)
    return Entry(
        run=version.run,
        number=version.number,
        sha256=digest,
        labels=dict(version.labels),
        start_ns=said.start_ns,
        ingested_at=said.ingested_at,
        tombstone=version.tombstone,
        results_of=version.results_of,
        head=head,
        sources=sources,
    )


def encode_entry(entry: Entry) -> bytes:
    """An entry as sealed JSON."""
    return sealed({"format": FORMAT, "must_understand": [], **msgspec.to_builtins(entry)})


def decode_entry(data: bytes, key: str) -> Entry:
    """The entry in these bytes; raises ValueError if it is damaged, or another run's."""
    fields = unsealed(data)
    check_understood(fields, key)
    entry = msgspec.convert(fields, Entry)
    if layout.entry(entry.run) != key:
        raise ValueError(f"it is that of {entry.run}")
    return entry


def digest(data: bytes) -> str:
    """The SHA-256 of an object, in hex."""
    return hashlib.sha256(data).hexdigest()


class RunList(Struct, frozen=True):
    """The list of all entries; `rows`: see ROWS."""

    runs: Sequence[Entry] = ()
    rows: int = ROWS
    format: int = FORMAT
    must_understand: Sequence[str] = ()

    def by_key(self) -> dict[str, Entry]:
        """Run key → its entry; none if the rows are of another release."""
        return {run_key(entry.run): entry for entry in self.runs} if self.rows == ROWS else {}


def encode_list(entries: Iterable[Entry]) -> bytes:
    """The list as compressed, sealed JSON."""
    runs = [replace(entry, head=None, sources=()) for entry in entries]
    fields = msgspec.to_builtins(RunList(runs))
    return gzip.compress(sealed(fields), 1, mtime=0)


def decode_list(data: bytes, path: str) -> RunList:
    """The list in these bytes; raises WarehouseError if it is damaged."""
    try:
        found = msgspec.json.decode(checked(gzip.decompress(data)), type=RunList)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise WarehouseError(
            f"{path}: damaged: {error}",
            hints.fill("write it again where the warehouse is stored: {}", hints.call("refresh")),
        ) from error
    check_understood({"must_understand": found.must_understand}, path)
    return found
