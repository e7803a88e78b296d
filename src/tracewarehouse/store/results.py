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

if TYPE_CHECKING:
    import pyarrow as pa

RECORDED = "tracewarehouse.recorded"  # the key of what a file says of itself
_FOLDER = re.compile(r"([a-z][a-z0-9_]*)@([1-9][0-9]*)")
_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{8})-([0-9a-f]{16})\.parquet")


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

    @property
    def key(self) -> str:
        """Where it lies."""
        folder = f"{layout.results(self.analysis, self.version)}/{self.run}"
        return f"{folder}/{self.effective}-{self.asked}-{self.source}.parquet"


def write_result(path: Path, recorded: Recorded, table: pa.Table, told: Mapping[str, Json]) -> None:
    """Writes rows as the file of a recorded result, each page with a checksum; `told` says more of them."""
    import pyarrow.parquet as pq

    said = dump({**vars(recorded), "rows": table.num_rows, **told})
    kept = {**(table.schema.metadata or {}), RECORDED.encode(): said.encode()}
    table = table.replace_schema_metadata(kept)
    pq.write_table(table, str(path), compression="zstd", write_page_checksum=True)


def of_analysis(blobs: Blobs, analysis: str, version: int) -> Iterator[Recorded]:
    """Every recorded result of an analysis; foreign names are passed over."""
    folder = layout.results(analysis, version)
    for run in blobs.list(folder):
        for name in blobs.list(f"{folder}/{run}"):
            found = _NAME.fullmatch(name)
            if found and layout.is_run_key(run):
                yield Recorded(analysis, version, run, *found.groups())


def every(blobs: Blobs) -> Iterator[Recorded]:
    """Every recorded result."""
    for name in sorted(blobs.list(layout.RESULTS)):
        if found := _FOLDER.fullmatch(name):
            yield from of_analysis(blobs, found[1], int(found[2]))


def fault(path: Path, recorded: Recorded) -> str | None:
    """What is wrong with the file of a recorded result; None where it is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(str(path), page_checksum_verification=True) as file:
            said: dict[str, Any] = json.loads(file.schema_arrow.metadata[RECORDED.encode()])
            rows = sum(batch.num_rows for batch in file.iter_batches(use_threads=False))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        return f"damaged result, to be taken away and recorded again: {why}"
    if any(said.get(name) != value for name, value in vars(recorded).items()):
        return "says it is another result"
    return None if said.get("rows") == rows else f"{rows} rows, {said.get('rows')} were written"
