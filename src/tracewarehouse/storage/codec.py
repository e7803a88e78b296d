"""Encoding of stored objects: JSON with a checksum, versions as Parquet, and which versions `clean` keeps.

A version has a row per stored file and a row per rank source, each with its record as JSON; the fields of
the run are in the file's metadata, with a checksum and the hash of all rows. Fields that this release does
not know are kept in `unknown` and written again.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse import hints
from tracewarehouse.errors import SchemaVersionError, WarehouseError
from tracewarehouse.storage.model import Brief, Json, RankSource, RunVersion, TableFile, Unknown

FORMAT = 2


# Created once: a version has a record for each of many thousand files.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_HEAD = b"tracewarehouse.run"
_BRIEF = b"tracewarehouse.brief"
_CHECKSUM = b',"checksum":"'
_HEX = 64
_DAMAGED = hints.fill("run {}; an older version of the run may be intact: RUN@vN", hints.call("verify"))
# Names in `must_understand` that this release knows.
_UNDERSTOOD = frozenset({"dropped", "expired"})

_FILE = ("table", "version", "bytes", "sha256", "footer_bytes", "footer_sha256", "first_rank", "last_rank")
_FILE_RENAMED = {"path": "key", "file_rows": "rows", "file_ranks": "ranks"}
_SOURCE = (
    "rank", "uid", "attempt", "manifest", "digest", "part", "format", "format_version", "text_bytes",
    "status", "committed_at",
)  # fmt: skip
_FILE_FIELDS = frozenset((*_FILE, *_FILE_RENAMED.values()))
_SOURCE_FIELDS = frozenset((*_SOURCE, "definitions", "files", "facts", "header"))
_RUN = (
    "run", "number", "expected_ranks", "created_at", "tool", "tombstone", "compacted", "expired", "nonce",
)  # fmt: skip
_RUN_NAMES = ("dropped", "retired", "must_understand")
_CONTENT = "content"


def dump(value: object) -> str:
    """Compact JSON; raises ValueError for NaN and infinities, which JSON lacks."""
    return _ENCODER.encode(value)


def sealed(fields: Mapping[str, Any]) -> bytes:
    """A JSON object whose last field is the sha256 of the object without that field."""
    body = dump(fields).encode()
    return body[:-1] + _CHECKSUM + hashlib.sha256(body).hexdigest().encode() + b'"}'


def unsealed(data: bytes) -> dict[str, Any]:
    """The fields of a sealed object with its `checksum`; raises ValueError if a byte changed."""
    cut = len(data) - len(_CHECKSUM) - _HEX - 2
    digest = data[cut + len(_CHECKSUM) : -2]
    body = data[: max(cut, 0)] + b"}"
    if data[max(cut, 0) :] != _CHECKSUM + digest + b'"}':
        raise ValueError("it has no checksum")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("checksum differs: the content changed after it was written")
    found: dict[str, Any] = json.loads(data)
    return found


def check_understood(fields: Mapping[str, Any], path: str) -> None:
    """Raises SchemaVersionError for an object that needs a field of a later release."""
    strange = sorted(set(fields.get("must_understand", ())) - _UNDERSTOOD)
    if strange:
        raise SchemaVersionError(
            f"{path}: uses {', '.join(strange)}, which this release does not know",
            "install a newer tracewarehouse",
        )


def unknown_of(fields: Mapping[str, Any], known: frozenset[str]) -> Unknown:
    """The fields with other names."""
    strange = fields.keys() - known
    return tuple((name, fields[name]) for name in strange) if strange else ()


# Records: a dict for JSON per stored file and per source


def records(sources: Sequence[RankSource]) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
    """The files of the sources, each once, and the sources, which refer to files by position."""
    at: dict[str, int] = {}
    files: list[dict[str, Json]] = []
    for source in sources:
        for file in source.files:
            if file.path not in at:
                at[file.path] = len(files)
                renamed = {name: getattr(file, field) for field, name in _FILE_RENAMED.items()}
                files.append(renamed | {name: getattr(file, name) for name in _FILE} | dict(file.unknown))
    return files, [_source_record(source, at) for source in sources]


def _source_record(source: RankSource, at: Mapping[str, int]) -> dict[str, Json]:
    record: dict[str, Json] = {name: getattr(source, name) for name in _SOURCE}
    record["definitions"] = dict(source.definitions)
    record["files"] = [[at[file.path], file.rows] for file in source.files]
    record["facts"] = dict(source.facts)
    return record | dict(source.unknown)


def sources_of(
    run: str, files: Iterable[Mapping[str, Any]], sources: Iterable[Mapping[str, Any]]
) -> tuple[RankSource, ...]:
    """The sources in records; raises KeyError, TypeError or IndexError if they are damaged."""
    shared = [_table_file(record) for record in files]
    return tuple(_source(run, record, shared) for record in sources)


def _table_file(record: Mapping[str, Any]) -> TableFile:
    known = {field: record[name] for field, name in _FILE_RENAMED.items()}
    known |= {name: record[name] for name in _FILE}
    return TableFile(**known, rows=0, unknown=unknown_of(record, _FILE_FIELDS))


def _source(run: str, record: Mapping[str, Any], shared: Sequence[TableFile]) -> RankSource:
    known = {name: record[name] for name in _SOURCE}
    files = tuple(replace(shared[index], rows=rows) for index, rows in record["files"])
    return RankSource(
        run=run,
        **known,
        definitions=record["definitions"],
        files=files,
        facts=record["facts"],
        unknown=unknown_of(record, _SOURCE_FIELDS),
    )


# Versions


def encode_version(version: RunVersion) -> bytes:
    """A version as Parquet bytes, with page checksums."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files, sources = records(version.sources)
    rows = [("file", -1, dump(record)) for record in files]
    rows += [
        ("source", source.rank, dump(record)) for source, record in zip(version.sources, sources, strict=True)
    ]
    schema = pa.schema([("kind", pa.large_string()), ("rank", pa.int64()), ("record", pa.large_string())])
    columns = [_column(field.type, [row[at] for row in rows]) for at, field in enumerate(schema)]
    sink = pa.BufferOutputStream()
    how = {"compression": "zstd", "use_dictionary": ["kind"], "write_page_checksum": True}
    # A copy of the Arrow schema would repeat all metadata.
    with pq.ParquetWriter(sink, schema, store_schema=False, **how) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        head: dict[str, Any] = {"format": FORMAT} | {name: getattr(version, name) for name in _RUN}
        head |= {name: list(getattr(version, name)) for name in _RUN_NAMES}
        head |= {"labels": dict(version.labels)} | dict(version.unknown) | {_CONTENT: _hash(rows)}
        brief = asdict(version.brief) | {"labels": dict(version.labels)}
        brief |= {"must_understand": list(version.must_understand)}
        writer.add_key_value_metadata({_HEAD: sealed(head), _BRIEF: sealed(brief)})
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _column(kind: Any, values: Sequence[Any]) -> Any:
    """An Arrow array without nulls, from buffers: `pa.array` would import pandas where it is installed."""
    import pyarrow as pa

    if kind != pa.large_string():
        numbers = array("q", values)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(numbers)])
    texts = [value.encode() for value in values]
    ends = array("q", accumulate(map(len, texts), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(kind, len(texts), buffers)


def _hash(rows: Iterable[tuple[str, int, str]]) -> str:
    """The sha256 of all rows."""
    text = "\n".join(f"{kind} {rank} {record}" for kind, rank, record in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def decode_version(data: bytes, path: str) -> RunVersion:
    """The version in Parquet bytes; raises WarehouseError naming the path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A buffer and one thread: a Python file object with threads aborts pyarrow at exit.
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        head = unsealed(file.schema_arrow.metadata[_HEAD])
        check_understood(head, path)
        table = file.read(use_threads=False)
        rows = list(
            zip(*(table.column(name).to_pylist() for name in ("kind", "rank", "record")), strict=True)
        )
        if _hash(rows) != head[_CONTENT]:
            raise ValueError("checksum differs: the content changed after it was written")
        return _version(head, rows)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise _damaged(path, error) from error


def _version(head: Mapping[str, Any], rows: Iterable[tuple[str, int, str]]) -> RunVersion:
    texts: dict[str, list[str]] = {"file": [], "source": []}
    for kind, _, record in rows:
        texts.setdefault(kind, []).append(record)
    files, sources = (json.loads(f"[{','.join(texts[kind])}]") for kind in ("file", "source"))
    known = {name: head[name] for name in _RUN} | {name: tuple(head[name]) for name in _RUN_NAMES}
    names = frozenset((*_RUN, *_RUN_NAMES, "labels", "format", _CONTENT, "checksum"))
    return RunVersion(
        **known,
        sources=sources_of(head["run"], files, sources),
        labels=head["labels"],
        unknown=unknown_of(head, names),
    )


def decode_brief(data: bytes, path: str) -> Brief:
    """The brief of a version, from its footer alone; raises WarehouseError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        fields = unsealed((pq.read_metadata(pa.BufferReader(data)).metadata or {})[_BRIEF])
        check_understood(fields, path)
        return Brief(**{name: fields[name] for name in Brief.__struct_fields__})
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise _damaged(path, error) from error


def head_of(data: bytes) -> dict[str, Any]:
    """The fields of a version with the hash of its rows and the checksum; raises ValueError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return unsealed(pq.read_schema(pa.BufferReader(data)).metadata[_HEAD])


def _damaged(path: str, error: BaseException) -> WarehouseError:
    return WarehouseError(f"{path}: damaged version: {first_line(error)}", _DAMAGED)


def first_line(error: BaseException) -> str:
    """The first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class KeepRules(Struct, frozen=True):
    """`replaced_before`: a version whose rows a later version also has goes if it was replaced before this.

    `versions_before`: any other version goes if it was replaced before this. `acknowledged`: sources of the
    run that an acknowledgement refers to; the last version of each stays.
    """

    replaced_before: datetime
    versions_before: datetime
    acknowledged: Collection[str] = ()


def last_removal(history: Sequence[RunVersion], before: datetime) -> int:
    """The number of the last removal before this time; earlier versions are not kept."""
    removals = (one.number for one in history if one.tombstone and _created(one) < before)
    return max(removals, default=0)


def kept_versions(history: Sequence[RunVersion], rules: KeepRules) -> frozenset[int]:
    """The numbers to keep of the versions of a run, which are given oldest first.

    The newest version and the newest removal stay, and what the rules keep. A label keeps nothing.
    """
    if not history:
        return frozenset()
    first = last_removal(history, rules.replaced_before)
    removals = [one.number for one in history if one.tombstone]
    kept = {history[-1].number, *removals[-1:]}
    later, later_sources = {_content(history[-1])}, {history[-1].source}
    for version, following in reversed(list(pairwise(history))):
        content, replaced_at = _content(version), _created(following)
        limit = rules.replaced_before if content in later else rules.versions_before
        acknowledged = version.source in rules.acknowledged and version.source not in later_sources
        if version.number >= first and (acknowledged or replaced_at >= limit):
            kept.add(version.number)
        later.add(content)
        later_sources.add(version.source)
    return frozenset(kept)


def _created(version: RunVersion) -> datetime:
    return datetime.fromisoformat(version.created_at)


def _content(version: RunVersion) -> str:
    """Equal for versions with the same rows and facts, whatever their files and labels."""
    sources = [
        [one.rank, one.uid, one.status, dict(one.definitions), dict(one.facts), _tables(one)]
        for one in version.sources
    ]
    return dump([version.run, version.tombstone, sources])


def _tables(source: RankSource) -> list[tuple[str, int, int]]:
    return sorted((file.table, file.version, file.rows) for file in source.files)
