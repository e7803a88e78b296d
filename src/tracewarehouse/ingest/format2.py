"""Conversion of a warehouse of format 2, which release 0.2.0 wrote; nothing else knows that format.

The tables of each run's newest version are built again from its stored events. Numbers, labels, expected
ranks, waiting ranks, recorded results, acknowledgements and removals stay; older versions, unpublished
commits and derived tables go. The new objects are written beside the old ones, then `_tw/warehouse.json` is
replaced, then the old objects are deleted: a killed conversion is repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import WarehouseError
from tracewarehouse.ingest.rebuild import READ, Rebuild, built
from tracewarehouse.ingest.rules import kernel_rules_of
from tracewarehouse.storage import layout, results
from tracewarehouse.storage.codec import FORMAT, sealed, unsealed
from tracewarehouse.storage.model import Changes, RankSource, RunVersion
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.store import Identity, Store

_FORMAT: Final = 2
_RUNS, _SOURCES, _WAITING, _KEPT = "_tw/runs", "_tw/sources", "_tw/waiting", "_tw/kept"
_ACKNOWLEDGED = "_tw/acknowledged"
_OLD: Final = (
    _RUNS, _SOURCES, _WAITING, _KEPT, _ACKNOWLEDGED, "_tw/receipts", "_tw/recorded", "_tw/quarantine",
    "_tw/catalog", "rollups",
)  # fmt: skip
_DERIVED: Final = "derived"
_SOURCE_FIELDS: Final = (
    "rank", "uid", "attempt", "digest", "part", "format", "format_version", "text_bytes", "status",
    "committed_at", "definitions", "facts",
)  # fmt: skip


class _Stored(Struct, frozen=True):
    """A stored source: its record, the keys of its files by table, and its header."""

    source: RankSource
    files: Mapping[str, tuple[str, ...]]
    header: str = "{}"


class _Version(Struct, frozen=True):
    """A version of format 2: its fields and sources, with the manifest of each."""

    fields: Mapping[str, Any]
    sources: tuple[_Stored, ...]


def _is_format_2(objects: Objects) -> bool:
    """Whether the warehouse has the format, or a conversion was killed before it deleted what is old."""
    try:
        number = json.loads(objects.get(layout.WAREHOUSE))["format"]
    except (OSError, ValueError, KeyError, TypeError):  # reported when the warehouse is opened
        return False
    was_killed = number == FORMAT and objects.is_listable and any(objects.walk(f"{_RUNS}/"))
    return number == _FORMAT or was_killed


def convert(objects: Objects, catalog: Catalog, tool: str) -> list[str]:
    """Converts a warehouse of the format in place; a line per run. No other process may use it.

    Raises WarehouseError if something cannot be read; then nothing has changed.
    """
    if not _is_format_2(objects):
        return []
    objects.check_writable()
    objects.check_conditions()
    fields = json.loads(objects.get(layout.WAREHOUSE))
    lines: list[str] = []
    if fields["format"] == _FORMAT:
        identity = Identity(FORMAT, fields["id"], fields["salt"], fields["created_at"])
        conversion = _Conversion(objects, catalog, Store(objects, identity, tool))
        lines = [line for run in conversion.runs() for line in conversion.convert_run(run)]
        conversion.copy_results()
        objects.put({layout.WAREHOUSE: sealed({**asdict(identity), "must_understand": []})})
    store = Store(objects, Identity(FORMAT, fields["id"], fields["salt"], fields["created_at"]), tool)
    waiting = (pending.source for waits in store.pending_runs().values() for pending in waits)
    kept_paths = {path for version in store.present() for path in version.paths}
    kept_paths |= {file.path for source in waiting for file in source.files}
    objects.delete([entry.key for entry in objects.walk(f"{layout.DATA}/") if entry.key not in kept_paths])
    # The runs last: as long as they are there, a killed conversion goes on here.
    for folder in (*_OLD[1:], _RUNS):
        objects.delete([entry.key for entry in objects.walk(f"{folder}/")])
    return lines


class _Conversion(Struct):
    """A conversion in progress: reads the old objects, and writes new ones to the store."""

    objects: Objects
    catalog: Catalog
    store: Store

    def runs(self) -> list[str]:
        """The keys of all runs, published or not."""
        return sorted({name for folder in (_RUNS, _SOURCES) for name in self.objects.folders(f"{folder}/")})

    def convert_run(self, run: str) -> Iterator[str]:
        """Publishes the newest version of a run under its number, and what waits for other ranks."""
        numbers = [name for name in self.objects.names(f"{_RUNS}/{run}") if name.endswith(".parquet")]
        newest = self._version(f"{_RUNS}/{run}/{max(numbers)}") if numbers else None
        if newest is not None and newest.fields["number"] not in self.store.versions(run):
            yield from self._convert_version(run, newest)
        settled = self._settled(run, numbers)
        for name in self.objects.names(f"{_SOURCES}/{run}"):
            yield from self._convert_waiting(run, name, settled)

    def _convert_version(self, run: str, newest: _Version) -> Iterator[str]:
        fields, number = newest.fields, newest.fields["number"]
        kept_numbers = []
        for name in self.objects.names(f"{_KEPT}/{run}"):
            if name.endswith(".parquet"):
                version = self._version(f"{_KEPT}/{run}/{name}")
                kept_numbers.append(version.fields["number"])
                self._put(version, tuple(stored.source for stored in version.sources))
        sources = self._built(newest.sources, f"{run}-{number}")
        self._put(newest, sources, kept_from=number, results_of=tuple(kept_numbers))
        if not fields["tombstone"]:
            ranks = "1 rank" if len(sources) == 1 else f"{len(sources)} ranks"
            yield f"{fields['run']}@v{number} converted: {ranks}"
            if any(stored.source.facts.get(_DERIVED) for stored in newest.sources):
                yield f"{fields['run']}: derived tables are gone: derive them again"

    def _put(self, version: _Version, sources: tuple[RankSource, ...], **more: Any) -> None:
        old = version.fields
        names = ("run", "number", "labels", "expected_ranks", "tombstone", "compacted")
        fields = {name: old[name] for name in names} | {"created_at": "", "tool": ""} | more
        self.store.put(RunVersion(sources=sources, **fields))

    def _convert_waiting(self, run: str, name: str, settled: frozenset[str]) -> Iterator[str]:
        """Publishes the sources of a manifest with the options of their call, so that they wait as before."""
        sources, fields = self._manifest(run, name)
        push = fields["push"] or {}
        groups: dict[tuple[int, bool, str], list[_Stored]] = {}
        for stored in sources:
            source = stored.source
            marked = self._marker(run, source) if not name.endswith(".push.json") else None
            options = push if name.endswith(".push.json") else marked
            if options is None or source.name in settled or name in settled:
                continue
            if source.uid in (push.get("without") or ()):
                continue
            expected = options.get("expected_ranks") or source.facts.get("world_size") or len(sources) + 1
            group = int(str(expected)), bool(options["replace"]), json.dumps(options["labels"])
            groups.setdefault(group, []).append(stored)
        for (expected, may_replace, labels), members in groups.items():
            built = self._built(members, name)
            self.store.publish(
                built[0].run,
                Changes(
                    sources=built, replace=may_replace, expected_ranks=expected, labels=json.loads(labels)
                ),
            )
            yield f"{built[0].run}: {len(built)} waiting ranks converted"

    def _settled(self, run: str, numbers: Iterable[str]) -> frozenset[str]:
        """The sources that a version held or a removal dropped, and manifests that no seal takes."""
        names: set[str] = set()
        for number in numbers:
            version = self._version(f"{_RUNS}/{run}/{number}")
            names |= {stored.source.name for stored in version.sources}
            names |= {stored.source.commit for stored in version.sources}
            names.update(version.fields["dropped"], version.fields["retired"])
        return frozenset(names)

    def _built(self, stored: Iterable[_Stored], name: str) -> tuple[RankSource, ...]:
        """The sources with tables of this release, committed."""
        with self.store.staging() as staging:
            tasks = [self._rebuild(source, staging / f"{index:06d}") for index, source in enumerate(stored)]
            if not tasks:
                return ()
            return self.store.commit(built(tasks))

    def _rebuild(self, stored: _Stored, folder: Path) -> Rebuild:
        if "events" in stored.source.expired:
            raise WarehouseError(
                f"run {stored.source.run} rank {stored.source.rank}: its events expired",
                "remove the run with the release that wrote it, or keep that release",
            )
        facts = {name: value for name, value in stored.source.facts.items() if name != _DERIVED}
        files = {table: tuple(self._path(key) for key in keys) for table, keys in stored.files.items()}
        return Rebuild(
            replace(stored.source, facts=facts, files=()),
            stored.header,
            {table: files[table] for table in READ if table in files},
            folder,
            self.catalog.folder,
            own=kernel_rules_of(self.store),
        )

    def _path(self, key: str) -> Path:
        path = self.store.path(key)
        if not path.exists():
            raise WarehouseError(f"{self.objects.describe(key)}: file missing", _REPAIR)
        return path

    # Old objects

    def _version(self, key: str) -> _Version:
        """A version: rows of kind file and source with a JSON record, and fields in the metadata."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(pa.BufferReader(self.objects.get(key)), use_threads=False)
            fields = unsealed(table.schema.metadata[b"tracewarehouse.run"])
            rows = list(
                zip(*(table.column(name).to_pylist() for name in ("kind", "rank", "record")), strict=True)
            )
            text = "\n".join(f"{kind} {rank} {record}" for kind, rank, record in rows)
            if hashlib.sha256(text.encode()).hexdigest() != fields["content"]:
                raise ValueError("checksum differs")
            files = [json.loads(record) for kind, _, record in rows if kind == "file"]
            sources = [json.loads(record) for kind, _, record in rows if kind == "source"]
            return _Version(fields, tuple(self._sources(fields["run"], files, sources)))
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise WarehouseError(f"{self.objects.describe(key)}: damaged: {error}", _REPAIR) from error

    def _manifest(self, run: str, name: str) -> tuple[tuple[_Stored, ...], Mapping[str, Any]]:
        key = f"{_SOURCES}/{run}/{name}"
        try:
            fields = unsealed(self.objects.get(key))
            return tuple(_read(fields["run"], fields["files"], fields["sources"])), fields
        except (ValueError, KeyError) as error:
            raise WarehouseError(f"{self.objects.describe(key)}: damaged: {error}", _REPAIR) from error

    def _sources(self, run: str, files: list[Any], sources: list[Any]) -> Iterator[_Stored]:
        """The sources of a version, with headers from their manifests."""
        headers: dict[str, dict[str, str]] = {}
        for stored in _read(run, files, sources):
            name = stored.source.commit
            if name not in headers:
                entry = self.objects.stat(f"{_SOURCES}/{layout.run_key(run)}/{name}")
                listed = self._manifest(layout.run_key(run), name)[0] if entry else ()
                headers[name] = {other.source.name: other.header for other in listed}
            yield replace(stored, header=headers[name].get(stored.source.name, "{}"))

    def _marker(self, run: str, source: RankSource) -> Mapping[str, Any] | None:
        """What a source waits for; None if it does not."""
        key = f"{_WAITING}/{run}/{source.rank:06d}-{source.name}.json"
        for _, data in self.objects.get_many((key, f"{key}.copy")):
            if data is not None:
                return unsealed(data)
        return None

    def copy_results(self) -> None:
        """Lists recorded results, whose keys stay, and copies acknowledgements."""
        for name in self.objects.names(_ACKNOWLEDGED):
            if name.endswith(".json"):
                fields = unsealed(self.objects.get(f"{_ACKNOWLEDGED}/{name}"))
                self.store.acknowledge(name.removesuffix(".json"), fields)
        listed = results.listed(self.objects)
        if unlisted := [key for _, key in results.every(self.objects) if key not in listed]:
            results.write_list(self.objects, unlisted)


_REPAIR = "repair or remove the run with the release that wrote it: pip install 'tracewarehouse==0.2.0'"


def _read(run: str, files: list[Any], sources: list[Any]) -> Iterator[_Stored]:
    """The sources in records, which refer to files by position."""
    for record in sources:
        tables: dict[str, list[tuple[int, str]]] = {}
        for position, _ in record["files"]:
            file = files[position]
            tables.setdefault(file["table"], []).append((file["version"], file["key"]))
        newest = {table: max(version for version, _ in candidates) for table, candidates in tables.items()}
        paths = {
            table: tuple(key for version, key in candidates if version == newest[table])
            for table, candidates in tables.items()
        }
        fields = {name: record[name] for name in _SOURCE_FIELDS}
        source = RankSource(run=run, commit=record["manifest"], files=(), **fields)
        yield _Stored(source, paths, record.get("header") or "{}")
