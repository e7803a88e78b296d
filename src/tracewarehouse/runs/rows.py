"""The tables `runs`, `ranks` and `rank_sources`: built from published versions when read, never stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tracewarehouse.contracts.contract import Column, Contract
from tracewarehouse.errors import WarehouseError
from tracewarehouse.runs.derivations import OF_RUN, is_current
from tracewarehouse.runs.quality import expected_ranks, world_size
from tracewarehouse.runs.selection import SelectedRun, brief_attributes
from tracewarehouse.storage import (
    Json,
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
    store: Versions,
    contract: Contract,
    selected: Sequence[SelectedRun],
    columns: Iterable[Column] | None = None,
) -> list[dict[str, Any]]:
    """The rows of `runs` (entire runs), or of `ranks` or `rank_sources` (selected ranks), by column name.

    Headers are read from the manifests only if `columns` (None: all) includes them.
    """
    wanted = contract.columns if columns is None else tuple(columns)
    if contract.name == "runs":
        return [run_row(each.version) for each in selected]
    if contract.name == "rank_sources":
        return [_source_row(wanted, source) for each in selected for source in each.sources]
    ranks = [(each.version, rank) for each in selected for rank in each.by_rank]
    headers: Mapping[str, str] = {}
    if any(column.name == _HEADER for column in wanted):
        headers = _headers(store, [rank for _, rank in ranks])
    return [_rank_row(wanted, version, rank, headers) for version, rank in ranks]


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
    """The row of the table `runs`, by column name."""
    ranks = version.by_rank
    return {
        "run_id": version.run,
        "labels": dict(version.labels),
        "start_ns": min(_numbers(ranks, "start_ns"), default=None),
        "end_ns": max(_numbers(ranks, "end_ns"), default=None),
        "world_size": world_size(version),
        "ranks_present": len(ranks),
        "ranks_expected": expected_ranks(version),
        "device_names": _texts(ranks, "device_name"),
        "framework_versions": _texts(ranks, "framework_version"),
        "schema_versions": {table: numbers[-1] for table, numbers in version.table_versions().items()},
        "tool_version": version.tool,
        "ingested_at": parse_utc(max((rank.committed_at for rank in ranks), default=version.created_at)),
        "version": version.number,
        "state": state(version),
        "bytes": version.bytes,
    }


def catalog_row(version: RunVersion) -> Json:
    """The row of `runs` as the run catalog stores it; a change of what it holds raises `run_catalog.ROWS`."""
    row = run_row(version)
    return row | {"ingested_at": row["ingested_at"].isoformat()}


def stored_row(row: Json) -> dict[str, Any]:
    """The row of `runs` in a run catalog, as `run_row` returns it."""
    assert isinstance(row, dict)
    return row | {"ingested_at": datetime.fromisoformat(str(row["ingested_at"]))}


def listed_rows(store: Versions) -> list[dict[str, Any]]:
    """The row of `runs` of every run in time order, from the run catalog where it has them."""
    present = [entry for entry in store.entries(catalog_row) if not entry.brief.tombstone]
    present.sort(key=lambda entry: brief_attributes(entry.brief).order)
    return [stored_row(entry.row) for entry in present]


def state(version: RunVersion) -> str:
    """`complete`, or `incomplete` if ranks are missing or damaged."""
    missing = set(range(expected_ranks(version) or 0)) - set(version.ranks)
    damaged = any(rank.status == "damaged" for rank in version.by_rank)
    return "incomplete" if missing or damaged else "complete"


def parse_utc(text: str) -> datetime:
    """An ISO time in UTC without its time zone, as in the tables."""
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time


def pending_row(waiting: Sequence[PendingSource]) -> dict[str, Any]:
    """The row of a run that is not published yet because expected ranks are missing."""
    first = waiting[0]
    sources = tuple(each.source for each in waiting)
    version = RunVersion(first.source.run, 0, sources, {}, first.expected_ranks, sources[-1].committed_at, "")
    return run_row(version) | {"state": "pending"}


def damaged_row(run: UnreadableRun) -> dict[str, Any]:
    """A run whose newest version cannot be read: only its name and the number of that version are known."""
    number = layout.version_number(run.key.rpartition("/")[2]) or 0
    version = RunVersion(run.run, number, (), {}, None, _UNKNOWN_TIME, "")
    return run_row(version) | {"state": "damaged", "ingested_at": None}


def _rank_row(
    columns: Iterable[Column], version: RunVersion, rank: Rank, headers: Mapping[str, str]
) -> dict[str, Any]:
    """The row of a rank: facts of all its sources, and the ingest of its main source."""
    ingest = _ingest_columns(rank.main) | {"status": rank.status, "ingested_at": rank.committed_at}
    derived = {name: is_current(version, rank, name) for name in OF_RUN}
    row = {**rank.facts, **ingest, **derived, _HEADER: headers.get(rank.main.name)}
    return {column.name: _value(row.get(column.name), column.type) for column in columns}


def _source_row(columns: Iterable[Column], source: RankSource) -> dict[str, Any]:
    row = {
        **source.facts,
        **_ingest_columns(source),
        "tables": json.dumps(sorted({file.table for file in source.files})),
    }
    return {column.name: _value(row.get(column.name), column.type) for column in columns}


def _ingest_columns(source: RankSource) -> dict[str, Any]:
    """The columns that describe the ingest, not the trace."""
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
        return parse_utc(value)
    if type_ == "JSON" and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value


def _numbers(ranks: Iterable[Rank], fact: str) -> list[int]:
    return [value for rank in ranks if isinstance(value := rank.facts.get(fact), int)]


def _texts(ranks: Iterable[Rank], fact: str) -> list[str]:
    return sorted({value for rank in ranks if isinstance(value := rank.facts.get(fact), str)})


@dataclass(frozen=True)
class TableSize:
    """A stored table of a run: rows of its ranks, bytes of its files (shared files count once)."""

    table: str
    version: int
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True)
class RunInfo:
    """A run: its row of `runs`, its `ranks`, its tables, and the numbers of its published versions."""

    run: Mapping[str, Any]
    ranks: Result
    tables: tuple[TableSize, ...]
    versions: tuple[int, ...]
    # As in "rules 2, policy 3f2a91c05d6b7e88": what secrets in its ranks were replaced by.
    redaction: tuple[str, ...] = ()
    # Formats and parts of them that no real file has tested.
    untested: tuple[str, ...] = ()


def redactions(selected: SelectedRun) -> tuple[str, ...]:
    """The rules that secrets in the chosen ranks were found by, each once."""
    found = {_redaction(source.facts.get("redaction")) for source in selected.sources}
    return tuple(sorted(found))


def _redaction(fact: object) -> str:
    if not isinstance(fact, dict):
        return "rules 1"
    if fact.get("rules") == 0:
        return "off"
    policy = f", policy {fact['policy']}" if fact.get("policy") else ""
    return f"rules {fact.get('rules', 1)}{policy}"


def table_sizes(selected: SelectedRun) -> tuple[TableSize, ...]:
    """The stored tables of the selected ranks, by name and version."""
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
