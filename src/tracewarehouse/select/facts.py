"""The tables `runs` and `ranks`: made from published versions at the moment of reading, never stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from tracewarehouse.contract import Contract
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.quality import expected_ranks, world_size
from tracewarehouse.store import RunVersion, Unit, Waiting

BUILT = ("runs", "ranks")


def built_rows(contract: Contract, chosen: Sequence[Chosen]) -> list[dict[str, Any]]:
    """The rows of `runs` (each run as a whole) or `ranks` (the chosen ones), keyed like the contract."""
    if contract.name == "runs":
        return [run_row(each.version) for each in chosen]
    return [_rank_row(contract, unit) for each in chosen for unit in each.units]


def run_row(version: RunVersion) -> dict[str, Any]:
    """What there is to say about a run, keyed like the contract `runs`."""
    units = version.units
    return {
        "run_id": version.run,
        "labels": dict(version.labels),
        "start_ns": min(_numbers(units, "start_ns"), default=None),
        "end_ns": max(_numbers(units, "end_ns"), default=None),
        "world_size": world_size(version),
        "ranks_present": len(units),
        "ranks_expected": expected_ranks(version),
        "device_names": _words(units, "device_name"),
        "framework_versions": _words(units, "framework_version"),
        "schema_versions": {table: numbers[-1] for table, numbers in version.table_versions().items()},
        "tool_version": version.tool,
        "ingested_at": moment(max((unit.committed_at for unit in units), default=version.created_at)),
        "version": version.number,
        "state": state(version),
        "bytes": version.bytes,
    }


def state(version: RunVersion) -> str:
    """`whole`, or `incomplete` where ranks are missing or damaged."""
    missing = set(range(expected_ranks(version) or 0)) - set(version.ranks)
    damaged = any(unit.status == "damaged" for unit in version.units)
    return "incomplete" if missing or damaged else "whole"


def moment(text: str) -> datetime:
    """A time in UTC, without its zone, as the tables keep it."""
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def pending_row(waiting: Sequence[Waiting]) -> dict[str, Any]:
    """A run of which nothing is published yet, because it waits for announced ranks."""
    first = waiting[0]
    units = tuple(each.unit for each in waiting)
    version = RunVersion(first.unit.run, 0, units, {}, first.expected_ranks, units[-1].committed_at, "")
    return run_row(version) | {"state": "pending"}


def _rank_row(contract: Contract, unit: Unit) -> dict[str, Any]:
    known = {
        "run_id": unit.run,
        "rank": unit.rank,
        "source_sha256": unit.digest,
        "text_bytes": unit.text_bytes,
        "status": unit.status,
        "reader_version": unit.reader,
        "ingested_at": unit.committed_at,
    }
    row = {**unit.facts, **known}
    return {column.name: _value(row.get(column.name), column.type) for column in contract.columns}


def _value(value: Any, type_: str) -> Any:
    if value is None:
        return None
    if type_ == "TIMESTAMP":
        return moment(value)
    if type_ == "JSON" and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value


def _numbers(units: Iterable[Unit], fact: str) -> list[int]:
    return [value for unit in units if isinstance(value := unit.facts.get(fact), int)]


def _words(units: Iterable[Unit], fact: str) -> list[str]:
    return sorted({value for unit in units if isinstance(value := unit.facts.get(fact), str)})
