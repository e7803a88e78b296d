"""What there is to say about one run: its tables with rows and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracewarehouse.select.chosen import Chosen

if TYPE_CHECKING:
    from tracewarehouse.result import Result


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


def table_sizes(chosen: Chosen) -> tuple[TableSize, ...]:
    """The stored tables of the chosen ranks, by name and version."""
    rows: dict[tuple[str, int], int] = {}
    sizes: dict[tuple[str, int], dict[str, int]] = {}
    for source in chosen.sources:
        for file in source.files:
            key = (file.table, file.version)
            rows[key] = rows.get(key, 0) + file.rows
            sizes.setdefault(key, {})[file.path] = file.bytes
    return tuple(
        TableSize(*key, rows[key], sum(sizes[key].values()), len(sizes[key])) for key in sorted(rows)
    )
