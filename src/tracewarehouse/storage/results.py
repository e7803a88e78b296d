"""Recorded results, a Parquet file for each run and analysis; acknowledgements of changes in a history."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse import hints
from tracewarehouse.late_regex import late_regex
from tracewarehouse.storage import copies, layout
from tracewarehouse.storage.codec import FORMAT, first_line, sealed, unsealed
from tracewarehouse.storage.model import Json
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.parquet_file import sha256

if TYPE_CHECKING:
    import pyarrow as pa


def put_acknowledgement(objects: Objects, key: str, fields: Mapping[str, str]) -> None:
    """Stores an acknowledgement under its key, replacing an older one."""
    copies.put(objects, {_path(key): sealed(fields)})


def delete_acknowledgement(objects: Objects, key: str) -> None:
    """Deletes an acknowledgement."""
    copies.delete(objects, [_path(key)])


def acknowledged(objects: Objects) -> Iterator[copies.Stored[dict[str, str]]]:
    """Every acknowledgement: metric, run, source and why."""
    return copies.every(objects, layout.ACKNOWLEDGED, _decode)


def _path(key: str) -> str:
    return f"{layout.ACKNOWLEDGED}/{key}.json"


def _decode(path: str, data: bytes) -> dict[str, str]:
    fields = unsealed(data)
    del fields["checksum"]
    if path != _path(layout.acknowledgement_key(fields["metric"], fields["run"], fields["source"])):
        raise ValueError("its key does not match")
    return fields


RECORDED = "tracewarehouse.recorded"  # the metadata key of the identity of a result
_FOLDER = late_regex(r"([a-z][a-z0-9_]*)@([1-9][0-9]*)")
_DEFINITION = late_regex(r"[0-9a-f]{16}")
_NAME = late_regex(r"([0-9a-f]{8})-([0-9a-f]{16})-([0-9a-f]{16})\.parquet")


class Recorded(Struct, frozen=True):
    """The identity of a recorded result: a definition of an analysis, a request, and the content of a run.

    `run` is the key of the run (lower case), `effective` the start of the effective hash, `request` a hash of
    parameters and derived tables, `source` the hash of the run's content.
    """

    analysis: str
    version: int
    run: str
    effective: str
    request: str
    source: str

    def key(self, checksum: str) -> str:
        """The key of its file, which contains the start of its sha256."""
        folder = f"{layout.results(self.analysis, self.version)}/{self.run}"
        return f"{folder}/{self.effective}/{self.request}-{self.source}-{checksum[:16]}.parquet"


def request_hash(params: Mapping[str, object], derived: Iterable[tuple[int, str, str]]) -> str:
    """8 hex digits for the parameters of a request, and for the derived tables: rank, table, sha256."""
    listed = sorted(list(file) for file in derived)
    return hashlib.sha256(json.dumps([sorted(params.items()), listed]).encode()).hexdigest()[:8]


def write_result(
    path: Path,
    recorded: Recorded,
    table: pa.Table,
    metadata: Mapping[bytes, bytes],
    more: Mapping[str, Json],
    few_rows: bool = False,
) -> None:
    """Writes rows as the file of a recorded result, with page checksums.

    `metadata` is copied to the file; `more` is stored with the identity of the result, under its checksum.
    `few_rows`: leave out what only pays in large files.
    """
    import pyarrow.parquet as pq

    named = {**metadata, RECORDED.encode(): sealed({**asdict(recorded), **more})}
    if not few_rows:
        table = table.replace_schema_metadata(named)
        pq.write_table(table, str(path), compression="zstd", write_page_checksum=True)
        return
    lean = {"write_statistics": False, "use_dictionary": False, "store_schema": False}
    table = table.replace_schema_metadata(None)
    with pq.ParquetWriter(
        str(path), table.schema, compression="zstd", write_page_checksum=True, **lean
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(named)


def keep(objects: Objects, files: Mapping[Recorded, tuple[Path, str]]) -> None:
    """Stores finished files, each with its sha256, as recorded results, then lists them."""
    keys = {one.key(digest): (path, digest) for one, (path, digest) in files.items()}
    rows = [[key, path.stat().st_size, digest] for key, (path, digest) in keys.items()]
    objects.adopt({key: path for key, (path, _) in keys.items()})
    write_list(objects, rows)


def keep_rollups(objects: Objects, files: Mapping[Recorded, tuple[Path, str]]) -> None:
    """Stores roll-ups of recorded results, each with its sha256; a history reads them first."""
    objects.adopt({_rollup(one.key(digest)): path for one, (path, digest) in files.items()})


def _rollup(key: str) -> str:
    return f"{layout.ROLLUPS}/{key.removeprefix(f'{layout.RESULTS}/')}"


def rollups_of(objects: Objects, analysis: str, version: int) -> Iterator[tuple[Recorded, str]]:
    """Every roll-up of an analysis with its key."""
    return rollups_below(objects, _rollup(layout.results(analysis, version)))


def rollups_below(objects: Objects, folder: str = layout.ROLLUPS) -> Iterator[tuple[Recorded, str]]:
    """Every roll-up in a folder with its key; ignores foreign names."""
    for entry in objects.walk(f"{folder}/"):
        if (found := parse_rollup(entry.key)) is not None:
            yield found, entry.key


def parse_rollup(key: str) -> Recorded | None:
    """The identity of the result that a roll-up is of; None for any other key."""
    prefix = f"{layout.ROLLUPS}/"
    return parse(f"{layout.RESULTS}/{key.removeprefix(prefix)}") if key.startswith(prefix) else None


def write_list(objects: Objects, rows: Sequence[Sequence[object]]) -> None:
    """Writes a list of recorded results, stored twice: key, size and sha256 of each."""
    name = f"{secrets.token_hex(8)}.json"
    fields = {"format": FORMAT, "must_understand": [], "name": name, "results": rows}
    copies.put(objects, {layout.recorded(name): sealed(fields)})


def lists(objects: Objects) -> Iterator[copies.Stored[dict[str, Recorded]]]:
    """Every list of recorded results: those that it names, by key."""
    return copies.every(objects, layout.RECORDED, _decode_list)


def listed(objects: Objects) -> dict[str, Recorded]:
    """Every result that an intact list names, by key."""
    values = (one.value for one in lists(objects) if one.value is not None)
    return {key: recorded for each in values for key, recorded in each.items()}


def _decode_list(key: str, data: bytes) -> dict[str, Recorded]:
    fields = unsealed(data)
    if layout.recorded(fields["name"]) != key:
        raise ValueError(f"it is {fields['name']}")
    return {each: found for each, *_ in fields["results"] if (found := parse(each)) is not None}


def parse(key: str) -> Recorded | None:
    """The identity of the result at a key; None for any other key."""
    parts = key.split("/")
    folder = _FOLDER.fullmatch(parts[1]) if len(parts) == 5 and parts[0] == layout.RESULTS else None
    name = _NAME.fullmatch(parts[4]) if folder else None
    if not folder or not name or not layout.is_run_key(parts[2]) or not _DEFINITION.fullmatch(parts[3]):
        return None
    return Recorded(folder[1], int(folder[2]), parts[2], parts[3], name[1], name[2])


def of_analysis(objects: Objects, analysis: str, version: int) -> Iterator[tuple[Recorded, str]]:
    """Every recorded result of an analysis with its key; ignores foreign names."""
    return every(objects, layout.results(analysis, version))


def every(objects: Objects, folder: str = layout.RESULTS) -> Iterator[tuple[Recorded, str]]:
    """Every recorded result in a folder with its key."""
    for entry in objects.walk(f"{folder}/"):
        if (found := parse(entry.key)) is not None:
            yield found, entry.key


def missing(objects: Objects, sources: Collection[tuple[str, str]]) -> Iterator[tuple[Recorded, str]]:
    """Results of these (run key, source) that are listed and that no file has any more."""
    present = {recorded for recorded, _ in every(objects)}
    for key, recorded in listed(objects).items():
        if recorded not in present and (recorded.run, recorded.source) in sources:
            yield recorded, key


# Paths of results whose checksum was compared in this process: a result never changes.
_intact: set[str] = set()


def is_intact(path: Path, recorded: Recorded) -> bool:
    """Whether the file of a result exists and has the checksum in its name; it is hashed once per process."""
    if str(path) not in _intact:
        try:
            if recorded.key(sha256(path)).rpartition("/")[2] != path.name:
                return False
        except OSError:
            return False
        _intact.add(str(path))
    return True


def fault(path: Path, recorded: Recorded) -> str | None:
    """The problem of the file of a recorded result; None if it is intact."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if recorded.key(sha256(path)).rpartition("/")[2] != path.name:
        return hints.fill("damaged result: delete it, then {} restores it", hints.record())
    try:
        fields: dict[str, Any] = unsealed(pq.read_schema(path).metadata[RECORDED.encode()])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        return f"not a recorded result: {first_line(error)}"
    if any(fields.get(name) != value for name, value in asdict(recorded).items()):
        return "contains another result"
    return None


def same_rows(one: Path, other: Path) -> bool:
    """Whether two results have the same rows, ignoring column names."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(str(path)) for path in (one, other)]
    columns = [table.rename_columns([str(at) for at in range(table.num_columns)]) for table in tables]
    return bool(columns[0].schema.equals(columns[1].schema) and columns[0].equals(columns[1]))
