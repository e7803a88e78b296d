"""Small real Parquet files, staged for the store's tests, and processes that share one warehouse."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracewarehouse.storage.layout import uid
from tracewarehouse.storage.model import Published, RankSource, RunVersion, Staged, StagedTable
from tracewarehouse.storage.store import Store

TABLES = {"events": 40, "kernels": 12}


def staged(
    folder: Path,
    rank: int,
    *,
    run: str = "run",
    content: str = "a",
    reader: int = 1,
    part: str = "",
    status: Any = "intact",
    text_bytes: int = 1000,
    tables: dict[str, int] | None = None,
) -> Staged:
    """A rank's staged tables; `content` determines its digest and rows."""
    place = folder / f"{run}-{rank}-{content}-{reader}{part}"
    place.mkdir(parents=True, exist_ok=True)
    made = [
        table(place, name, run, rank, rows, content)
        for name, rows in (TABLES if tables is None else tables).items()
    ]
    digest = f"{content}-{rank}"
    definitions = dict.fromkeys(TABLES, 1)
    key = uid(digest, run, rank, part=part, format="kineto", format_version=reader, definitions=definitions)
    facts: dict[str, Any] = {"world_size": 8, "start_ns": 2**60 + rank}
    return Staged(
        run=run,
        rank=rank,
        uid=key,
        digest=digest,
        part=part,
        text_bytes=text_bytes,
        format="kineto",
        format_version=reader,
        definitions=definitions,
        status=status,
        tables=tuple(made),
        facts=facts,
        header='{"a": 1}',
    )


def table(place: Path, name: str, run: str, rank: int, rows: int, content: str) -> StagedTable:
    """One staged Parquet file."""
    columns = {
        "run_id": pa.array([run] * rows, pa.string()),
        "rank": pa.array([rank] * rows, pa.int32()),
        "event_id": pa.array(range(rows), pa.int64()),
        "name": pa.array([content] * rows, pa.string()),
    }
    path = place / f"{name}.parquet"
    with pa.OSFile(str(path), "wb") as file:  # closed on a full disk, too
        pq.write_table(pa.table(columns), file)
    return StagedTable(name, 1, path, rows)


def commit(store: Store, rank: int, **said: Any) -> RankSource:
    """A committed source of one rank."""
    with store.staging() as folder:
        return store.commit([staged(folder, rank, **said)])[0]


def versions_of(store: Store, run: str = "run") -> tuple[RunVersion, ...]:
    """Every version of a run, oldest first, none of which may be damaged."""
    return tuple(store.get(run, number) for number in store.versions(run))


def by_rank(published: Published, sources: Iterable[RankSource]) -> dict[int, str]:
    """Rank → the outcome of its source, for calls with one source per rank."""
    return {source.rank: published.outcome[source.name] for source in sources}


def seen(store: Store, run: str = "run", table: str = "events") -> dict[int, list[str]]:
    """Rank → the contents of its rows in the newest version."""
    version = store.newest(run)
    assert version is not None
    found: dict[int, list[str]] = {}
    for scan in version.scan_plan(table):
        with pq.ParquetFile(store.path(scan.path)) as file:
            rows = file.read(use_threads=False).to_pylist()
        for row in rows:
            if scan.ranks is None or row["rank"] in scan.ranks:
                found.setdefault(row["rank"], []).append(row["name"])
    return found


def context() -> Any:
    """Clean processes, quick to start: forked from a server that has only imported."""
    made = multiprocessing.get_context("forkserver")
    # pandas, because `pa.array` imports it where it is there.
    made.set_forkserver_preload(
        ["pytest", "pandas", "pyarrow.compute", "pyarrow.parquet", "tracewarehouse.storage"]
    )
    return made


def processes(target: Callable[..., None], arguments: Iterable[tuple[Any, ...]]) -> None:
    """Runs one process for each tuple of arguments, all at once; every one must end well."""
    started = [context().Process(target=target, args=one) for one in arguments]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * len(started)
