"""Recorded results, a Parquet file for each run and analysis; acknowledgements of changes in a history."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import BY_STEP, FINDINGS, RECORDED_TABLE, Contract
from tracewarehouse.errors import TwError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, first_line, sealed, unsealed
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.model import CLASSIFIED, Json, RunVersion
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.parquet_file import sha256

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.storage.mirror import LocalFiles

T = TypeVar("T")


def acknowledged(objects: Objects) -> Iterator[tuple[str, dict[str, str] | str]]:
    """The key of every acknowledgement with metric, run, source and why, or with its problem."""
    yield from _every(objects, layout.ACKNOWLEDGED, _decode)


def _every(objects: Objects, folder: str, decode: Callable[[str, bytes], T]) -> Iterator[tuple[str, T | str]]:
    names = [name for name in objects.names(folder) if name.endswith(".json")]
    for key, data in objects.get_many([f"{folder}/{name}" for name in names]):
        try:
            if data is not None:
                yield key, decode(key, data)
        except (ValueError, KeyError, TypeError, TwError) as error:
            yield key, f"damaged: {error}"


def acknowledgement(key: str) -> str:
    """The object of an acknowledgement."""
    return f"{layout.ACKNOWLEDGED}/{key}.json"


def _decode(path: str, data: bytes) -> dict[str, str]:
    fields = unsealed(data)
    if path != acknowledgement(layout.acknowledgement_key(fields["metric"], fields["run"], fields["source"])):
        raise ValueError("its key does not match")
    return fields


RECORDED = "tracewarehouse.recorded"  # the metadata key of the identity of a result
# A roll-up of a recorded result, which a history reads first.
ROLLUP = ".rollup.parquet"
_PACK = late_regex(r"[0-9a-f]{16}-[0-9]+(\.rollup)?\.parquet")
# The fields of `Recorded`, and a checksum.
_KEY = late_regex(
    layout.RESULTS + r"/([a-z][a-z0-9_]*)@([1-9][0-9]*)/([^/]+)/([0-9a-f]{16})"
    r"/([0-9a-f]{8})-([0-9a-f]{16})-[0-9a-f]{16}\.parquet"
)


class Recorded(Struct, frozen=True, gc=False):
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


@lru_cache(maxsize=64)
def request_hash(params: tuple[tuple[str, object], ...], derived: tuple[tuple[int, str, str], ...]) -> str:
    """8 hex digits for the parameters of a request, and derived tables in order: rank, table, sha256."""
    return hashlib.sha256(json.dumps([params, derived]).encode()).hexdigest()[:8]


# Digits of a definition that are those of the effective hash, if users' rules give the others.
_HASH_DIGITS = 8


class RecordedAnalysis(Struct, frozen=True):
    """An analysis as this release defines it, with default parameters.

    `has_kinds`: it depends on the kinds of kernels, and so on the users' rules for them.
    """

    contract: Contract
    effective_hash: str
    derived_tables: frozenset[str]
    has_kinds: bool
    # What is run: the analysis, or all rules.
    parts: tuple[Contract, ...]

    @classmethod
    def of(cls, contract: Contract, catalog: Catalog) -> RecordedAnalysis:
        """The analysis with its hash and the derived tables that it reads."""
        if contract.is_recorded and contract.name != FINDINGS:
            contract = catalog.get(contract.name.removeprefix(RECORDED_TABLE), contract.version, "analysis")
        parts: tuple[Contract, ...] = (contract,)
        effective = catalog.effective_hash(contract)
        if contract.is_recorded:
            parts = catalog.rules()
            hashes = (effective, *map(catalog.effective_hash, parts))
            effective = hashlib.sha256("".join(hashes).encode()).hexdigest()
        below = [each for one in parts for each in catalog.closure(one) if each.kind == "table"]
        return cls(
            contract,
            effective,
            frozenset(each.name for each in below if each.derived),
            any(each.name in CLASSIFIED for each in below),
            parts,
        )

    def definition(self, version: RunVersion) -> str:
        """16 hex digits in the names of results of a run: the start of the effective hash.

        If users' rules classified kernels of the run, the second half is that of a hash of these rules.
        """
        digests = version.kernel_rules if self.has_kinds else ()
        if not any(digests):
            return self.effective_hash[:16]
        rules = digests[0] if len(digests) == 1 else hashlib.sha256(repr(digests).encode()).hexdigest()
        return f"{self.effective_hash[:_HASH_DIGITS]}{rules[: 16 - _HASH_DIGITS]}"

    def params(self, by_step: bool) -> dict[str, object]:
        """The parameters to run with: per step if the analysis supports it and the run has complete steps."""
        return {BY_STEP: True} if self.contract.steps_optional and by_step else {}

    def key(self, version: RunVersion, by_step: bool) -> Recorded:
        """The key of its result for a version of a run."""
        return self._keys(version, (by_step,))[0]

    def possible_keys(self, version: RunVersion) -> tuple[Recorded, ...]:
        """The keys that its result can have, the one with rows per step first."""
        return self._keys(version, (True, False) if self.contract.steps_optional else (False,))

    def _keys(self, version: RunVersion, by_steps: Iterable[bool]) -> tuple[Recorded, ...]:
        # The request: parameters, and tables that were derived after the trace was ingested.
        derived: tuple[tuple[int, str, str], ...] = ()
        if not self.derived_tables.isdisjoint(version.summary.tables):
            files = ((source.rank, file) for source in version.sources for file in source.files)
            keys = [(rank, one.table, one.sha256) for rank, one in files if one.table in self.derived_tables]
            derived = tuple(sorted(keys))
        run, definition = run_key(version.run), self.definition(version)
        requests = [request_hash(tuple(self.params(each).items()), derived) for each in by_steps]
        ref, source = self.contract.ref, version.source
        return tuple(Recorded(*ref, run, definition, request, source) for request in requests)


def differ_in_rules(one: str, other: str) -> bool:
    """Whether two definitions of an analysis differ, but only in the users' rules for kernels."""
    return one != other and one[:_HASH_DIGITS] == other[:_HASH_DIGITS]


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

    footer = {**metadata, RECORDED.encode(): sealed({**asdict(recorded), **more})}
    if not few_rows:
        table = table.replace_schema_metadata(footer)
        pq.write_table(table, str(path), compression="zstd", write_page_checksum=True)
        return
    lean = {"write_statistics": False, "use_dictionary": False, "store_schema": False}
    table = table.replace_schema_metadata(None)
    with pq.ParquetWriter(
        str(path), table.schema, compression="zstd", write_page_checksum=True, **lean
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(footer)


# The folder of packs in that of an analysis: copies of the results, or roll-ups, of many runs in one file.
PACKED = "packed"
# The least number of results in a pack.
PACK_RESULTS = 64


def packs(objects: Objects, folder: str) -> list[str]:
    """The keys of the packs in the folder of an analysis."""
    names = objects.names(f"{folder}/{PACKED}")
    return [f"{folder}/{PACKED}/{name}" for name in names if _PACK.fullmatch(name)]


def pack_size(key: str) -> int:
    """The number of files in a pack, as its name says."""
    return int(key.rpartition("-")[2].partition(".")[0])


class Packs(Struct, frozen=True):
    """Keys of packs; key of a packed file → the key of its intact pack, and what the file's metadata says."""

    keys: frozenset[str]
    files: Mapping[str, str]
    said: Mapping[str, str]

    @classmethod
    def read(cls, objects: Objects, files: LocalFiles, folder: str) -> Packs:
        """The packs of an analysis that are intact."""
        import pyarrow.parquet as pq

        in_packs, all_metadata = dict[str, str](), dict[str, str]()
        keys = packs(objects, folder)
        files.copy(keys)
        for key, path in zip(keys, map(files.path, keys), strict=True):
            with suppress(OSError):
                if sha256(path)[:16] == key.rpartition("/")[2][:16]:
                    metadata = msgspec.json.decode(pq.read_metadata(path).metadata[RECORDED.encode()])
                    if all_metadata.keys().isdisjoint(metadata):  # of two calls at once, each packs
                        in_packs |= dict.fromkeys(metadata, key)
                        all_metadata |= metadata
        return cls(frozenset(keys), in_packs, all_metadata)


def write_pack(objects: Objects, staging: Path, folder: str, files: Mapping[str, Path]) -> None:
    """Writes a pack of files by their keys, all of rows or all of roll-ups.

    Its column `filename` has the key of the file of each row, its metadata what each file says.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata, tables = {}, []
    for key, path in files.items():
        rows = pq.read_table(str(path))
        metadata[key] = rows.schema.metadata[RECORDED.encode()].decode()
        keys = pa.array([key] * len(rows), pa.string())
        tables.append(rows.replace_schema_metadata(None).append_column("filename", keys))
    ending = ROLLUP if all(key.endswith(ROLLUP) for key in files) else ".parquet"
    packed = pa.concat_tables(tables)
    # The Arrow schema would contain the metadata once more.
    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
    with pq.ParquetWriter(str(staging / PACKED), packed.schema, **options) as writer:
        writer.write_table(packed)
        writer.add_key_value_metadata({RECORDED: json.dumps(metadata)})
    name = f"{sha256(staging / PACKED)[:16]}-{len(files)}{ending}"
    objects.adopt({f"{folder}/{PACKED}/{name}": staging / PACKED})


def by_kind(keys: Iterable[str]) -> tuple[dict[Recorded, str], dict[Recorded, str]]:
    """The recorded results among these keys, and the roll-ups, each with its key."""
    listed = list(keys)
    stored, rollups = ({one: key for key in listed if (one := of(key))} for of in (parse, parse_rollup))
    return stored, rollups


def parse_rollup(key: str) -> Recorded | None:
    """The identity of the result that a roll-up is of; None for any other key."""
    return parse(f"{key.removesuffix(ROLLUP)}.parquet") if key.endswith(ROLLUP) else None


def write_list(objects: Objects, keys: Sequence[str]) -> None:
    """Writes a list of what one call stored, so that the loss of it is noticed."""
    key = f"{layout.RECORDED}/{secrets.token_hex(8)}.json"
    objects.put({key: sealed({"format": FORMAT, "must_understand": [], "key": key, "results": keys})})


def lists(objects: Objects) -> Iterator[tuple[str, list[str] | str]]:
    """The key of every list with the keys that it names, or with its problem."""
    yield from _every(objects, layout.RECORDED, _decode_list)


def listed(objects: Objects) -> frozenset[str]:
    """Every key that an intact list names."""
    return frozenset(key for _, names in lists(objects) if not isinstance(names, str) for key in names)


def _decode_list(key: str, data: bytes) -> list[str]:
    fields = unsealed(data)
    if fields["key"] != key:
        raise ValueError(f"it is {fields['key']}")
    names: list[str] = fields["results"]
    return names


def parse(key: str) -> Recorded | None:
    """The identity of the result at a key; None for any other key."""
    match = _KEY.fullmatch(key)
    if match is None or not layout.is_run_key(match[3]):
        return None
    analysis, version, *fields = match.groups()
    return Recorded(analysis, int(version), *fields)


def every(
    objects: Objects, folder: str = layout.RESULTS, parsed: Callable[[str], Recorded | None] = parse
) -> Iterator[tuple[Recorded, str]]:
    """Every recorded result, or roll-up with `parse_rollup`, in a folder with its key."""
    for entry in objects.walk(f"{folder}/"):
        if (recorded := parsed(entry.key)) is not None:
            yield recorded, entry.key


def missing(objects: Objects, sources: Collection[tuple[str, str]]) -> Iterator[tuple[Recorded | None, str]]:
    """What is listed and missing: results of these (run key, source), and acknowledgements (None)."""
    named = sorted(listed(objects))  # first: a result is stored before it is listed
    present = {recorded for recorded, _ in every(objects)}
    for key in named:
        recorded = parse(key)
        if recorded is None and key.startswith(layout.ACKNOWLEDGED) and objects.stat(key) is None:
            yield None, key
        if recorded is not None and recorded not in present and (recorded.run, recorded.source) in sources:
            yield recorded, key


def unlist(objects: Objects, gone: frozenset[str]) -> list[str]:
    """Writes a list of what else the lists name that name these keys; returns the keys of those lists."""
    every = lists(objects) if gone else ()
    old_lists = {key: names for key, names in every if not isinstance(names, str)}
    old_lists = {key: names for key, names in old_lists.items() if not gone.isdisjoint(names)}
    if remaining := sorted({name for names in old_lists.values() for name in names} - gone):
        write_list(objects, remaining)
    return list(old_lists)


def set_aside(objects: Objects, keys: Iterable[str]) -> None:
    """Renames damaged objects that no version names; `tw clean --taken-out` deletes them."""
    for key, data in objects.get_many(keys):
        if data is not None:
            objects.put({f"{key}{layout.ASIDE}": data})
            objects.delete([key])


# Paths of results whose checksum was compared in this process: a result never changes.
_intact: set[str] = set()


def is_intact(path: Path, recorded: Recorded) -> bool:
    """Whether the file of a result exists and has the checksum in its name; it is hashed once per process."""
    if str(path) not in _intact:
        try:
            if not _is_named(path, recorded):
                return False
        except OSError:
            return False
        _intact.add(str(path))
    return True


def _is_named(path: Path, recorded: Recorded) -> bool:
    """Whether the file of a result or roll-up has the checksum in its name."""
    return recorded.key(sha256(path)).rpartition("/")[2] == path.name.replace(ROLLUP, ".parquet")


def fault(path: Path, recorded: Recorded) -> str | None:
    """The problem of the file of a recorded result; None if it is intact."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not _is_named(path, recorded):
            return hints.fill("damaged result: delete it, then {} restores it", hints.record())
        fields: dict[str, Any] = unsealed(pq.read_schema(path).metadata[RECORDED.encode()])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        return f"not a recorded result: {first_line(error)}"
    if any(fields.get(name) != value for name, value in asdict(recorded).items()):
        return "contains another result"
    return None


def same_rows(first: Path, second: Path) -> bool:
    """Whether two results have the same rows, ignoring column names."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(str(path)) for path in (first, second)]
    columns = [table.rename_columns([str(number) for number in range(table.num_columns)]) for table in tables]
    return bool(columns[0].schema.equals(columns[1].schema) and columns[0].equals(columns[1]))
