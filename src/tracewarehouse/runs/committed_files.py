"""The Parquet files that a version of a run names, and local copies of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tracewarehouse import hints
from tracewarehouse.errors import DamagedRunError, UnknownName
from tracewarehouse.exact_text import rank_list
from tracewarehouse.result import Field, Result, from_rows
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Store, TableFile

_FIELDS = (
    Field("key", "VARCHAR"),
    Field("bytes", "BIGINT", "B"),
    Field("rows", "BIGINT"),
    Field("ranks", "VARCHAR"),
    Field("sha256", "VARCHAR"),
)


_VERIFY = hints.fill("{} lists all problems", hints.Hint("wh.verify(deep=True)", "tw verify --deep"))


@dataclass(frozen=True)
class Fetched:
    """Files that are now on this machine: all of them, and those that were downloaded."""

    files: int
    bytes: int
    downloaded: int
    downloaded_bytes: int


def committed_files(run: SelectedRun, table: str) -> Result:
    """A row per file of a table, by key, with the selected ranks in it and their rows.

    Raises UnknownName if the run has no such table.
    """
    files: dict[str, TableFile] = {}
    rows: dict[str, dict[int, int]] = {}
    for source in run.sources:
        for file in source.files:
            if file.table == table:
                files[file.path] = file
                ranks = rows.setdefault(file.path, {})
                ranks[source.rank] = ranks.get(source.rank, 0) + file.rows
    if not files:
        raise UnknownName("table", table, _tables(run))
    found = [
        (key, file.bytes, sum(rows[key].values()), rank_list(sorted(rows[key])), file.sha256)
        for key, file in sorted(files.items())
    ]
    return from_rows(_FIELDS, found)


def _tables(run: SelectedRun) -> set[str]:
    return {file.table for source in run.sources for file in source.files}


def fetch_files(store: Store, runs: Iterable[SelectedRun], tables: Collection[str] = ()) -> Fetched:
    """Downloads the files of runs, of all tables or of these; each is compared with its checksum.

    Raises WarehouseError if they need more than the budget, DamagedRunError for a damaged one, UnknownName.
    """
    files: dict[str, TableFile] = {}
    for run in runs:
        for table in set(tables) - (known := _tables(run)):
            raise UnknownName("table", table, known)
        named = (file for source in run.sources for file in source.files)
        files |= {file.path: file for file in named if not tables or file.table in tables}
    before = {key for key, file in files.items() if store.has_copy(file)}
    problems = store.fetch(files.values())
    for key, what in sorted(problems.items()):
        raise DamagedRunError(f"{store.objects.describe(key)}: {what}", _VERIFY)
    new = [file.bytes for key, file in files.items() if key not in before]
    return Fetched(len(files), sum(file.bytes for file in files.values()), len(new), sum(new))
