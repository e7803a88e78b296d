"""Recorded results: one Parquet file for each run and analysis, whose name says what it is the result of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewarehouse.store import layout
from tracewarehouse.store.blobs import Blobs
from tracewarehouse.store.codec import dump
from tracewarehouse.store.model import Json
from tracewarehouse.store.units import sha256

if TYPE_CHECKING:
    import pyarrow as pa

RECORDED = "tracewarehouse.recorded"  # the key of what a file says of itself
_FOLDER = re.compile(r"([a-z][a-z0-9_]*)@([1-9][0-9]*)")
_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{8})-([0-9a-f]{16})-([0-9a-f]{16})\.parquet")


@dataclass(frozen=True)
class Recorded:
    """What a recorded result is of: an analysis as it is defined, asked in some way, over what a run was.

    `run` is the key of the run (lower case), `effective` the begin of the effective hash, `asked` a hash of
    parameters and derived tables, `source` that of the version of the run.
    """

    analysis: str
    version: int
    run: str
    effective: str
    asked: str
    source: str

    def key(self, checksum: str) -> str:
        """Where its file lies, which begins its sha256 like that."""
        folder = f"{layout.results(self.analysis, self.version)}/{self.run}"
        return f"{folder}/{self.effective}-{self.asked}-{self.source}-{checksum[:16]}.parquet"


def write_result(
    path: Path,
    recorded: Recorded,
    table: pa.Table,
    metadata: Mapping[bytes, bytes],
    told: Mapping[str, Json],
) -> None:
    """Writes rows as the file of a recorded result.

    `metadata` goes into the file as it is; `told` is said beside what the result is of.
    """
    import pyarrow.parquet as pq

    said = dump({**vars(recorded), **told})
    table = table.replace_schema_metadata({**metadata, RECORDED.encode(): said.encode()})
    pq.write_table(table, str(path), compression="zstd")


def of_analysis(blobs: Blobs, analysis: str, version: int) -> Iterator[tuple[Recorded, str]]:
    """Every recorded result of an analysis, and where it lies; foreign names are passed over."""
    folder = layout.results(analysis, version)
    for run in sorted(blobs.list(folder)):
        for name in sorted(blobs.list(f"{folder}/{run}")):
            found = _NAME.fullmatch(name)
            if found and layout.is_run_key(run):
                yield Recorded(analysis, version, run, found[1], found[2], found[3]), f"{folder}/{run}/{name}"


def every(blobs: Blobs) -> Iterator[tuple[Recorded, str]]:
    """Every recorded result, and where it lies."""
    for name in sorted(blobs.list(layout.RESULTS)):
        if found := _FOLDER.fullmatch(name):
            yield from of_analysis(blobs, found[1], int(found[2]))


def fault(path: Path, recorded: Recorded) -> str | None:
    """What is wrong with the file of a recorded result; None where it is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if recorded.key(sha256(path)).rpartition("/")[2] != path.name:
        return "damaged result: take it away, and tw record --all brings it back"
    try:
        said: dict[str, Any] = json.loads(pq.read_schema(path).metadata[RECORDED.encode()])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        return f"no recorded result: {(str(error).splitlines() or [type(error).__name__])[0]}"
    if any(said.get(name) != value for name, value in vars(recorded).items()):
        return "says it is another result"
    return None
