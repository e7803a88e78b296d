"""Encoding of stored objects: sealed JSON, and a Parquet object for the files of a run of many files.

A sealed object ends with the SHA-256 of what comes before. Fields that this release does not know are kept
in `unknown` and written again.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse import hints
from tracewarehouse.errors import SchemaVersionError, WarehouseError
from tracewarehouse.storage.layout import entry as entry_key
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import (
    Brief,
    FileShares,
    Json,
    ManySources,
    RankSource,
    RunVersion,
    StoredList,
    Summary,
    TableFile,
)
from tracewarehouse.storage.objects import Objects

T = TypeVar("T")
FORMAT = 3
# A version of more files keeps them in a separate object, of which a command reads what it needs.
MANY_FILES = 1_000
_CHECKSUM = b',"checksum":"'
_HEX = 64
# Names in `must_understand` that this release knows.
_UNDERSTOOD = frozenset({"expired"})


def sealed(fields: Mapping[str, Any]) -> bytes:
    """A JSON object whose last field is the sha256 of the object without that field."""
    body = msgspec.json.encode(fields)
    return body[:-1] + _CHECKSUM + hashlib.sha256(body).hexdigest().encode() + b'"}'


def checked(data: bytes) -> bytes:
    """The JSON of a sealed object; raises ValueError if a byte changed."""
    cut = len(data) - len(_CHECKSUM) - _HEX - 2
    digest = data[cut + len(_CHECKSUM) : -2]
    body = data[: max(cut, 0)] + b"}"
    if data[max(cut, 0) :] != _CHECKSUM + digest + b'"}':
        raise ValueError("it has no checksum")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("checksum differs: the content changed after it was written")
    return body


def unsealed(data: bytes) -> dict[str, Any]:
    """The fields of a sealed object, without its checksum; raises ValueError if a byte changed."""
    fields: dict[str, Any] = msgspec.json.decode(checked(data))
    return fields


def check_understood(fields: Mapping[str, Any], path: str) -> None:
    """Raises SchemaVersionError for an object that needs a field of a later release."""
    strange = sorted(set(fields.get("must_understand", ())) - _UNDERSTOOD)
    if strange:
        raise SchemaVersionError(
            f"{path}: uses {', '.join(strange)}, which this release does not know",
            "install a newer tracewarehouse",
        )


def fields_of(record: Struct, without: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a record for JSON, with those of a later release."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__ if name not in without}
    return fields | dict(fields.pop("unknown", ()))


def record_of(kind: type[T], fields: Mapping[str, Any], **more: Any) -> T:
    """A record from JSON; unknown fields are kept. Raises TypeError if one is missing."""
    names = kind.__struct_fields__  # type: ignore[attr-defined]
    own_fields = {name: value for name, value in fields.items() if name in names}
    strange = fields.keys() - own_fields
    unknown = {"unknown": tuple((name, fields[name]) for name in strange)} if strange else {}
    return kind(**own_fields, **more, **unknown)


def source_records(sources: Iterable[RankSource]) -> tuple[list[Json], list[Json]]:
    """The files of the sources, each once, and the sources, which refer to files by position."""
    positions: dict[str, int] = {}
    files: list[Json] = []
    listed: list[Json] = []
    for source in sources:
        for file in source.files:
            if file.path not in positions:
                positions[file.path] = len(files)
                files.append(fields_of(file, ["rows"]))
        shares: list[Json] = [[positions[file.path], file.rows] for file in source.files]
        listed.append(fields_of(source, ["run", "files"]) | {"files": shares})
    return files, listed


def sources_of(
    run: str, files: Iterable[Mapping[str, Any]], sources: Iterable[Mapping[str, Any]]
) -> tuple[RankSource, ...]:
    """The sources in records; raises KeyError, TypeError or IndexError if they are damaged."""
    shared = [record_of(TableFile, record, rows=0) for record in files]
    return tuple(
        record_of(
            RankSource,
            {name: value for name, value in record.items() if name not in ("files", "header")},
            run=run,
            files=tuple(replace(shared[position], rows=rows) for position, rows in record["files"]),
        )
        for record in sources
    )


def in_order(files: Iterable[TableFile]) -> tuple[TableFile, ...]:
    """The files of a source as they are stored."""
    return tuple(sorted(files, key=lambda file: (file.table, file.version, file.path)))


# Versions


def encode_version(version: RunVersion) -> bytes:
    """A version as sealed JSON, which names the list object if its sources are in one."""
    fields = {"format": FORMAT} | fields_of(version, ["sources"])
    if isinstance(version.sources, ManySources):
        fields["list"] = version.sources.stored
    else:
        fields["files"], fields["sources"] = source_records(version.sources)
    return sealed(fields)


def decode_version(objects: Objects, data: bytes, path: str) -> RunVersion:
    """The version in these bytes of one of the objects; raises WarehouseError naming the path."""
    try:
        fields = unsealed(data)
        check_understood(fields, path)
        if "list" in fields:
            stored = msgspec.convert(fields["list"], StoredList)
            return version_of(fields, many_sources(objects, fields["run"], stored))
        return version_of(fields, sources_of(fields["run"], fields["files"], fields["sources"]))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        hint = hints.fill("run {}; an older version of the run may be intact: RUN@vN", hints.call("verify"))
        raise WarehouseError(f"{path}: damaged version: {first_line(error)}", hint) from error


def version_of(fields: Mapping[str, Any], sources: Sequence[RankSource]) -> RunVersion:
    """The version in a record, with these sources; raises KeyError or TypeError if it is damaged."""
    not_in_head = ("format", "list", "files", "sources")
    head = {name: value for name, value in fields.items() if name not in not_in_head}
    head["labels"] = msgspec.convert(head["labels"], dict[str, str])
    head["expected_ranks"] = msgspec.convert(head["expected_ranks"], int | None)
    for name in ("retired", "results_of", "taken_out", "must_understand"):
        head[name] = tuple(head[name])
    return record_of(RunVersion, head, sources=sources)


def first_line(error: BaseException) -> str:
    """The first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


# The files and sources of a version of many files: one Parquet object, of which a command reads a part. Rows
# are in order of table and rank; the sources come first, under the table "". Each table has row groups of its
# own.

_ROWS = 10_000
# The end of the object that is read first: the footer of a run of some thousand ranks.
_TAIL_BYTES = 24_000

_TEXTS = ("table", "path")
_NUMBERS = ("version", "bytes", "file_rows", "first_rank", "last_rank", "file_ranks", "crc32", "footer_bytes")
# In hex in a TableFile.
_HASHES = ("footer_sha256", "sha256")
# Of the shares of a file: position and rank of each source, and its rows.
_SHARES = ("at", "rank", "rows")


def encode_sources(sources: Sequence[RankSource]) -> bytes:
    """The list object of these sources."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    by_path: dict[str, tuple[TableFile, list[tuple[int, int, int]]]] = {}
    for position, source in enumerate(sources):
        for file in source.files:
            by_path.setdefault(file.path, (file, []))[1].append((position, source.rank, file.rows))
    by_table: dict[str, list[FileShares]] = {}
    for file, shares in by_path.values():
        by_table.setdefault(file.table, []).append((file, shares))
    fields = [(name, pa.string()) for name in _TEXTS] + [(name, pa.int64()) for name in _NUMBERS]
    fields += [(name, pa.binary(32)) for name in _HASHES]
    fields += [(name, pa.list_(pa.int64())) for name in _SHARES]
    schema = pa.schema([*fields, ("record", pa.binary())])
    sink = pa.BufferOutputStream()
    rising = {f"{name}.list.element": "DELTA_BINARY_PACKED" for name in ("at", "rank")}
    options = {
        "compression": "zstd",
        "compression_level": 9,
        "use_dictionary": [*_TEXTS[:1], "version"],
        "column_encoding": rising,
        "write_statistics": False,
        "store_schema": False,
    }
    with pq.ParquetWriter(sink, schema, write_page_checksum=True, **options) as writer:
        rows = [_source_row(source) for source in sources]
        writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=_ROWS)
        for table in sorted(by_table):
            listed = sorted(by_table[table], key=lambda one: (one[0].first_rank, one[0].path))
            rows = [_file_row(file, shares) for file, shares in listed]
            writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=_ROWS)
        groups = [("", len(sources)), *((table, len(by_table[table])) for table in sorted(by_table))]
        writer.add_key_value_metadata({"groups": msgspec.json.encode(groups)})
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _source_row(source: RankSource) -> dict[str, Any]:
    return {"table": "", "record": msgspec.json.encode(fields_of(source, ["run", "files"]))}


def _file_row(file: TableFile, shares: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    row = {name: getattr(file, name) for name in (*_TEXTS, *_NUMBERS)}
    row |= {name: bytes.fromhex(getattr(file, name)) for name in _HASHES}
    row |= dict(zip(_SHARES, zip(*shares, strict=True), strict=True))
    unlisted = fields_of(file, [*row, "rows"])
    return row | {"record": msgspec.json.encode(unlisted)}


class _ListObject:
    """The parts of a list object that were read so far, in a buffer of its size."""

    def __init__(self, objects: Objects, stored: StoredList) -> None:
        self.objects, self.stored = objects, stored
        self._buffer = bytearray(stored.bytes)
        self._read: set[int] = set()

    def rows(self, tables: Iterable[str] | None) -> list[dict[str, Any]]:
        """The rows of these tables, of the sources for "", or all for None. Raises WarehouseError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if not self._read:
                self._fetch_footer()
            view = pa.BufferReader(pa.py_buffer(self._buffer))
            file = pq.ParquetFile(view, page_checksum_verification=True)
            listed: list[tuple[str, int]] = msgspec.json.decode(file.metadata.metadata[b"groups"])
            names = [table for table, rows in listed for _ in range(0, max(rows, 1), _ROWS)]
            groups = [index for index, table in enumerate(names) if tables is None or table in tables]
            for index in groups:
                self._fetch_group(index, file.metadata.row_group(index))
            rows: list[dict[str, Any]] = file.read_row_groups(groups, use_threads=False).to_pylist()
            return rows
        except FileNotFoundError:
            raise self._damaged("missing") from None
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"damaged: {error}") from error

    def _damaged(self, what: str) -> WarehouseError:
        return WarehouseError(f"{self.objects.describe(self.stored.key)}: {what}", hints.call("verify"))

    def _fetch_footer(self) -> None:
        self._fetch(max(self.stored.bytes - _TAIL_BYTES, 0), self.stored.bytes)
        footer = int.from_bytes(self._buffer[-8:-4], "little") + 8
        if _TAIL_BYTES < footer <= self.stored.bytes:
            self._fetch(self.stored.bytes - footer, self.stored.bytes - _TAIL_BYTES)

    def _fetch_group(self, index: int, group: Any) -> None:
        if index not in self._read:
            columns = [group.column(number) for number in range(group.num_columns)]
            start = min(column.dictionary_page_offset or column.data_page_offset for column in columns)
            self._fetch(start, start + sum(column.total_compressed_size for column in columns))
            self._read.add(index)

    def _fetch(self, start: int, end: int) -> None:
        self._buffer[start:end] = self.objects.get_range(self.stored.key, start, end)


def many_sources(objects: Objects, run: str, stored: StoredList) -> ManySources:
    """The sources in a list object, which is read when they are looked at."""
    opened = _ListObject(objects, stored)

    def files(tables: Iterable[str]) -> list[FileShares]:
        return [_file_of(row) for row in opened.rows(tables)]

    def load() -> tuple[RankSource, ...]:
        rows = opened.rows(None)
        sources = [msgspec.json.decode(row["record"]) for row in rows if not row["table"]]
        files_of_sources: list[list[TableFile]] = [[] for _ in sources]
        for file, shares in (_file_of(row) for row in rows if row["table"]):
            for position, _, count in shares:
                files_of_sources[position].append(replace(file, rows=count))
        return tuple(
            record_of(RankSource, source, run=run, files=in_order(of_source))
            for source, of_source in zip(sources, files_of_sources, strict=True)
        )

    return ManySources(stored, files, load)


def _file_of(row: Mapping[str, Any]) -> FileShares:
    columns = {name: row[name] for name in (*_TEXTS, *_NUMBERS)} | {name: row[name].hex() for name in _HASHES}
    file = record_of(TableFile, columns | msgspec.json.decode(row["record"]), rows=0)
    return file, list(zip(*(row[name] for name in _SHARES), strict=True))


# The index: the newest version of each run. An entry per run is the receipt of its newest version: if the
# version that it names is missing, the run is damaged, and is not answered from an older one. It is written
# by the publisher of the version. The list of all entries, with a row of `runs` for each, only saves reading
# entries where keys can be listed: an entry that changed since then is read. On a web server the list is all
# there is.

# Raised when rows of the table `runs` are computed in another way: lists with others are not used.
LIST_ROWS = 2


class Entry(Struct, frozen=True, omit_defaults=True, gc=False):
    """The newest version of a run: its number and SHA-256, and what orders and names it.

    In the object of the run: the other fields of the version (`head`), and name and commit of each source,
    from which a lost version is written again. Only in the list: the `stamp` of the object, which changes
    with it, the row of `runs` and the `summary` (None if removed), and few of the other fields.
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
    row: msgspec.Raw = msgspec.Raw()
    summary: Summary | None = None

    @property
    def brief(self) -> Brief:
        """What orders and names the version."""
        return Brief(self.run, self.number, self.labels, self.start_ns, self.ingested_at, self.tombstone)


def entry_of(version: RunVersion, digest: str) -> Entry:
    """The entry of a version whose object has this SHA-256."""
    summary = version.summary
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
        start_ns=summary.start_ns,
        ingested_at=summary.ingested_at,
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
    if entry_key(entry.run) != key:
        raise ValueError(f"it is that of {entry.run}")
    return entry


def digest(data: bytes) -> str:
    """The SHA-256 of an object, in hex."""
    return hashlib.sha256(data).hexdigest()


class RunList(Struct, frozen=True):
    """The list of all entries; `rows`: see LIST_ROWS."""

    runs: Sequence[Entry] = ()
    rows: int = LIST_ROWS
    format: int = FORMAT
    must_understand: Sequence[str] = ()

    def by_key(self) -> dict[str, Entry]:
        """Run key → its entry; none if the rows are of another release."""
        return {run_key(entry.run): entry for entry in self.runs} if self.rows == LIST_ROWS else {}


# The fields of a version beside its summary that its readers need.
_LISTED = ("expected_ranks", "created_at", "tool", "expired")


def encode_list(entries: Iterable[Entry]) -> bytes:
    """The list as compressed, sealed JSON."""
    runs = []
    for entry in entries:
        head = entry.head or {}
        runs.append(replace(entry, head={name: head.get(name) for name in _LISTED}, sources=()))
    return gzip.compress(sealed(asdict(RunList(runs))), 6, mtime=0)


def decode_list(data: bytes, path: str) -> RunList:
    """The list in these bytes; raises WarehouseError if it is damaged."""
    try:
        run_list = msgspec.json.decode(checked(gzip.decompress(data)), type=RunList)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise WarehouseError(
            f"{path}: damaged: {error}",
            hints.fill("write it again where the warehouse is stored: {}", hints.call("refresh")),
        ) from error
    check_understood({"must_understand": run_list.must_understand}, path)
    return run_list
