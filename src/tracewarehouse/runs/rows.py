"""The tables `runs`, `ranks` and `rank_sources`: made from published versions on reading, never stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import WarehouseError
from tracewarehouse.runs.quality import expected_ranks, world_size
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import (
    PendingSource,
    Rank,
    RankSource,
    RunVersion,
    UnreadableRun,
    Versions,
    layout,
)

if TYPE_CHECKING:
    from tracewarehouse.result import Result


_HEADER = "header"
_UNKNOWN_TIME = "1970-01-01T00:00:00Z"


def built_rows(
    root: Path, contract: Contract, selected: Sequence[SelectedRun], columns: Iterable[Column] | None = None
) -> list[dict[str, Any]]:
    """The rows of `runs` (each run as a whole), `ranks` or `rank_sources` (the chosen ones), keyed like the
    contract.

    The headers of ranks are read from the manifests, and only where `columns` (None: all) has them.
    """
    wanted = contract.columns if columns is None else tuple(columns)
    if contract.name == "runs":
        return [run_row(each.version) for each in selected]
    if contract.name == "rank_sources":
        return [_source_row(wanted, source) for each in selected for source in each.sources]
    ranks = [rank for each in selected for rank in each.by_rank]
    headers: Mapping[str, str] = {}
    if any(column.name == _HEADER for column in wanted):
        headers = _headers(Versions(root), ranks)
    return [_rank_row(wanted, rank, headers) for rank in ranks]


def _headers(store: Versions, ranks: Sequence[Rank]) -> Mapping[str, str]:
    """The headers of ranks by source; those of a damaged manifest are missing."""
    by_manifest: dict[tuple[str, str], list[RankSource]] = {}
    for rank in ranks:
        by_manifest.setdefault((rank.run, rank.main.manifest), []).append(rank.main)
    found: dict[str, str] = {}
    for sources in by_manifest.values():
        with suppress(WarehouseError):
            found |= store.headers(sources)
    return found


def run_row(version: RunVersion) -> dict[str, Any]:
    """What there is to say about a run, keyed like the contract `runs`."""
    ranks = version.by_rank
    return {
        "run_id": version.run,
        "labels": dict(version.labels),
        "start_ns": min(_numbers(ranks, "start_ns"), default=None),
        "end_ns": max(_numbers(ranks, "end_ns"), default=None),
        "world_size": world_size(version),
        "ranks_present": len(ranks),
        "ranks_expected": expected_ranks(version),
        "device_names": _words(ranks, "device_name"),
        "framework_versions": _words(ranks, "framework_version"),
        "schema_versions": {table: numbers[-1] for table, numbers in version.table_versions().items()},
        "tool_version": version.tool,
        "ingested_at": moment(max((rank.committed_at for rank in ranks), default=version.created_at)),
        "version": version.number,
        "state": state(version),
        "bytes": version.bytes,
    }


def state(version: RunVersion) -> str:
    """`complete`, or `incomplete` where ranks are missing or damaged."""
    missing = set(range(expected_ranks(version) or 0)) - set(version.ranks)
    damaged = any(rank.status == "damaged" for rank in version.by_rank)
    return "incomplete" if missing or damaged else "complete"


def moment(text: str) -> datetime:
    """A time in UTC, without its zone, as the tables keep it."""
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def pending_row(waiting: Sequence[PendingSource]) -> dict[str, Any]:
    """A run of which nothing is published yet, because it waits for announced ranks."""
    first = waiting[0]
    sources = tuple(each.source for each in waiting)
    version = RunVersion(first.source.run, 0, sources, {}, first.expected_ranks, sources[-1].committed_at, "")
    return run_row(version) | {"state": "pending"}


def damaged_row(run: UnreadableRun) -> dict[str, Any]:
    """A run whose newest version cannot be read: only its name and the number of that version are known."""
    number = layout.version_number(run.key.rpartition("/")[2]) or 0
    version = RunVersion(run.run, number, (), {}, None, _UNKNOWN_TIME, "")
    return run_row(version) | {"state": "damaged", "ingested_at": None}


def _rank_row(columns: Iterable[Column], rank: Rank, headers: Mapping[str, str]) -> dict[str, Any]:
    """What the main source says, and the facts of all."""
    known = _known(rank.main) | {"status": rank.status, "ingested_at": rank.committed_at}
    row = {**rank.facts, **known, _HEADER: headers.get(rank.main.name)}
    return {column.name: _value(row.get(column.name), column.type) for column in columns}


def _source_row(columns: Iterable[Column], source: RankSource) -> dict[str, Any]:
    row = {
        **source.facts,
        **_known(source),
        "tables": json.dumps(sorted({file.table for file in source.files})),
    }
    return {column.name: _value(row.get(column.name), column.type) for column in columns}


def _known(source: RankSource) -> dict[str, Any]:
    """The columns that are no facts of the trace, but of its ingest."""
    return {
        "run_id": source.run,
        "rank": source.rank,
        "source": source.name,
        "source_sha256": source.digest,
        "source_format": source.format,
        "source_part": source.part,
        "text_bytes": source.text_bytes,
        "status": source.status,
        "format_version": source.format_version,
        "ingested_at": source.committed_at,
    }


def _value(value: Any, type_: str) -> Any:
    if value is None:
        return None
    if type_ == "TIMESTAMP":
        return moment(value)
    if type_ == "JSON" and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value


def _numbers(ranks: Iterable[Rank], fact: str) -> list[int]:
    return [value for rank in ranks if isinstance(value := rank.facts.get(fact), int)]


def _words(ranks: Iterable[Rank], fact: str) -> list[str]:
    return sorted({value for rank in ranks if isinstance(value := rank.facts.get(fact), str)})


@dataclass(frozen=True)
class TableSize:
    """A table of a run: rows of its ranks, and bytes of the files, where one shared by ranks counts once."""

    table: str
    version: int
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True)
class RunInfo:
    """A run in full: its row of `runs`, its `ranks`, its tables, the numbers of its published versions."""

    run: Mapping[str, Any]
    ranks: Result
    tables: tuple[TableSize, ...]
    versions: tuple[int, ...]


def table_sizes(selected: SelectedRun) -> tuple[TableSize, ...]:
    """The stored tables of the chosen ranks, by name and version."""
    rows: dict[tuple[str, int], int] = {}
    sizes: dict[tuple[str, int], dict[str, int]] = {}
    for source in selected.sources:
        for file in source.files:
            key = (file.table, file.version)
            rows[key] = rows.get(key, 0) + file.rows
            sizes.setdefault(key, {})[file.path] = file.bytes
    return tuple(
        TableSize(*key, rows[key], sum(sizes[key].values()), len(sizes[key])) for key in sorted(rows)
    )
