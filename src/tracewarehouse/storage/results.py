"""Recorded results: a Parquet file for each run and analysis, whose path says what it is the result of.

A manifest for each recording lists what it wrote, so that a result that was lost is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewarehouse import hints
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, first_line, sealed, unsealed
from tracewarehouse.storage.commit import sha256
from tracewarehouse.storage.model import Json
from tracewarehouse.storage.objects import Objects, names_in

if TYPE_CHECKING:
    import pyarrow as pa

RECORDED = "tracewarehouse.recorded"  # the key of what a file says of itself
_FOLDER = re.compile(r"([a-z][a-z0-9_]*)@([1-9][0-9]*)")
_DEFINITION = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"([0-9a-f]{8})-([0-9a-f]{16})-([0-9a-f]{16})\.parquet")
_NAME_1 = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{16}-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True)
class Recorded:
    """What a recorded result is of: an analysis as it is defined, asked in some way, over what a run was.

    `run` is the key of the run (lower case), `effective` the begin of the effective hash, `request` a hash of
    parameters and derived tables, `source` that of the version of the run.
    """

    analysis: str
    version: int
    run: str
    effective: str
    request: str
    source: str

    def key(self, checksum: str) -> str:
        """Where its file lies, which begins its sha256 like that."""
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
) -> None:
    """Writes rows as the file of a recorded result, with page checksums.

    `metadata` goes into the file as it is; `more` is said beside what the result is of, sealed by a checksum.
    """
    import pyarrow.parquet as pq

    said = sealed({**vars(recorded), **more})
    table = table.replace_schema_metadata({**metadata, RECORDED.encode(): said})
    pq.write_table(table, str(path), compression="zstd", write_page_checksum=True)


def keep(objects: Objects, files: Mapping[Recorded, tuple[Path, str]]) -> None:
    """Stores finished files, each with its sha256, as recorded results, then lists them in a manifest."""
    keys = {one.key(digest): (path, digest) for one, (path, digest) in files.items()}
    listed = [[key, path.stat().st_size, digest] for key, (path, digest) in keys.items()]
    objects.adopt({key: path for key, (path, _) in keys.items()})
    data = sealed({"format": FORMAT, "must_understand": [], "results": listed})
    objects.put({layout.recorded(f"{secrets.token_hex(8)}.json"): data})


def manifests(objects: Objects) -> Iterator[tuple[str, dict[str, Recorded] | str]]:
    """Every manifest of recorded results: where it is, and key → what it lists, or what is wrong with it."""
    for name in names_in(objects, layout.RECORDED):
        key = layout.recorded(name)
        if not name.endswith(".json"):
            continue
        try:
            listed = [each for each, *_ in unsealed(objects.get(key))["results"]]
            yield key, {each: found for each in listed if (found := parse(each)) is not None}
        except (ValueError, KeyError, TypeError) as error:
            yield key, f"damaged manifest of recorded results: {first_line(error)}"


def parse(key: str) -> Recorded | None:
    """What the result at a key is of; None for any other key."""
    parts = key.split("/")
    folder = _FOLDER.fullmatch(parts[1]) if len(parts) == 5 and parts[0] == layout.RESULTS else None
    name = _NAME.fullmatch(parts[4]) if folder else None
    if not folder or not name or not layout.is_run_key(parts[2]) or not _DEFINITION.fullmatch(parts[3]):
        return None
    return Recorded(folder[1], int(folder[2]), parts[2], parts[3], name[1], name[2])


def of_analysis(objects: Objects, analysis: str, version: int) -> Iterator[tuple[Recorded, str]]:
    """Every recorded result of an analysis, and where it is; foreign names are passed over."""
    return _below(objects, layout.results(analysis, version))


def every(objects: Objects) -> Iterator[tuple[Recorded, str]]:
    """Every recorded result, and where it is."""
    return _below(objects, layout.RESULTS)


def _below(objects: Objects, folder: str) -> Iterator[tuple[Recorded, str]]:
    for entry in objects.walk(f"{folder}/"):
        if (found := parse(entry.key)) is not None:
            yield found, entry.key


def missing(objects: Objects, sources: Collection[tuple[str, str]]) -> Iterator[tuple[Recorded, str]]:
    """Results that a manifest lists, of these (run key, source), and that nothing is recorded of any more."""
    present = {recorded for recorded, _ in every(objects)}
    for _, listed in manifests(objects):
        for key, recorded in listed.items() if isinstance(listed, dict) else ():
            if recorded not in present and (recorded.run, recorded.source) in sources:
                yield recorded, key


def fault(path: Path, recorded: Recorded) -> str | None:
    """What is wrong with the file of a recorded result; None where it is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if recorded.key(sha256(path)).rpartition("/")[2] != path.name:
        return hints.fill("damaged result: delete it, then {} restores it", hints.record())
    try:
        said: dict[str, Any] = unsealed(pq.read_schema(path).metadata[RECORDED.encode()])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        return f"no recorded result: {first_line(error)}"
    if any(said.get(name) != value for name, value in vars(recorded).items()):
        return "says it is another result"
    return None


def same_rows(one: Path, other: Path) -> bool:
    """Whether two results have the same rows; their columns may have other names."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(str(path)) for path in (one, other)]
    columns = [table.rename_columns([str(at) for at in range(table.num_columns)]) for table in tables]
    return bool(columns[0].schema.equals(columns[1].schema) and columns[0].equals(columns[1]))


def is_of_format_1(key: str) -> bool:
    """Whether format 1 recorded a result there, a level higher: `tw upgrade` leaves them to `clean`."""
    parts = key.split("/")
    return len(parts) == 4 and bool(_FOLDER.fullmatch(parts[1]) and _NAME_1.fullmatch(parts[3]))
