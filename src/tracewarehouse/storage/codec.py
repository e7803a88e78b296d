"""Encoding of stored objects: sealed JSON, and a Parquet object for the files of a run of many files.

A sealed object ends with the SHA-256 of what comes before. Fields that this release does not know are kept
in `unknown` and written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import SchemaVersionError, WarehouseError
from tracewarehouse.storage.model import (
    Json,
    ManySources,
    RankSource,
    RunVersion,
    StoredList,
    TableFile,
)

T = TypeVar("T")
FORMAT = 3
# A version of more files keeps them in a separate object, of which a command reads what it needs.
MANY_FILES = 1_000
_CHECKSUM = b',"checksum":"'
_HEX = 64
_DAMAGED = hints.fill("run {}; an older version of the run may be intact: RUN@vN", hints.call("verify"))
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
    found: dict[str, Any] = msgspec.json.decode(checked(data))
    return found


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
    found = {name: getattr(record, name) for name in record.__struct_fields__ if name not in without}
    return found | dict(found.pop("unknown", ()))


def record_of(kind: type[T], fields: Mapping[str, Any], **more: Any) -> T:
    """A record from JSON; unknown fields are kept. Raises TypeError if one is missing."""
    names = kind.__struct_fields__  # type: ignore[attr-defined]
    known = {name: value for name, value in fields.items() if name in names}
    strange = fields.keys() - known
    unknown = {"unknown": tuple((name, fields[name]) for name in strange)} if strange else {}
    return kind(**known, **more, **unknown)


def source_records(sources: Iterable[RankSource]) -> tuple[list[Json], list[Json]]:
    """The files of the sources, each once, and the sources, which refer to files by position."""
    at: dict[str, int] = {}
    files: list[Json] = []
    listed: list[Json] = []
    for source in sources:
        for file in source.files:
            if file.path not in at:
                at[file.path] = len(files)
                files.append(fields_of(file, ["rows"]))
        shares: list[Json] = [[at[file.path], file.rows] for file in source.files]
        listed.append(fields_of(source, ["run", "files"]) | {"files": shares})
    return files, listed


def sources_of(
    run: str, files: Iterable[Mapping[str, Any]], sources: Iterable[Mapping[str, Any]]
) -> tuple[RankSource, ...]:
    """The sources in records; raises KeyError, TypeError or IndexError if they are damaged."""
    shared = [table_file(record) for record in files]
    return tuple(
        record_of(
            RankSource,
            {name: value for name, value in record.items() if name not in ("files", "header")},
            run=run,
            files=tuple(msgspec.structs.replace(shared[at], rows=rows) for at, rows in record["files"]),
        )
        for record in sources
    )


def table_file(record: Mapping[str, Any]) -> TableFile:
    """A file from its record, without a share."""
    chunks = tuple(map(tuple, record.get("chunks", ())))
    return record_of(TableFile, {**record, "chunks": chunks}, rows=0)


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


def decode_version(
    data: bytes, path: str, many_sources: Callable[[str, StoredList], ManySources]
) -> RunVersion:
    """The version in these bytes; raises WarehouseError naming the path.

    `many_sources(run, list)` returns the sources in a list object.
    """
    try:
        fields = unsealed(data)
        check_understood(fields, path)
        head = {
            name: value
            for name, value in fields.items()
            if name not in ("format", "list", "files", "sources")
        }
        for name in ("retired", "results_of", "taken_out", "must_understand"):
            head[name] = tuple(head[name])
        if "list" in fields:
            stored = msgspec.convert(fields["list"], StoredList)
            return record_of(RunVersion, head, sources=many_sources(fields["run"], stored))
        sources = sources_of(fields["run"], fields["files"], fields["sources"])
        return record_of(RunVersion, head, sources=sources)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise WarehouseError(f"{path}: damaged version: {first_line(error)}", _DAMAGED) from error


def first_line(error: BaseException) -> str:
    """The first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0]
