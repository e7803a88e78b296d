"""One run in words: what `tw info` prints."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Protocol

from tracewarehouse.render.table import table, upright, values
from tracewarehouse.result import Field, Result

_OF_A_RANK = (
    "rank",
    "status",
    "source_name",
    "events",
    "gpu_rows",
    "steps",
    "world_size",
    "host",
    "device_name",
)


class TableSize(Protocol):
    """A table of a run with what its files hold."""

    @property
    def table(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...


def described(run: Result, ranks: Result, tables: Sequence[TableSize], versions: Sequence[int]) -> str:
    """The run's own row, then its ranks, tables and versions."""
    width = shutil.get_terminal_size((100, 24)).columns
    fields = [Field("table", "VARCHAR"), Field("version", "INTEGER"), Field("rows", "BIGINT", "count")]
    fields.append(Field("bytes", "BIGINT", "bytes"))
    sizes = [(each.table, each.version, each.rows, each.bytes) for each in tables]
    parts = [
        "\n".join(upright(run.columns(), values(run)[0], width).lines()),
        "\n".join(_ranks(ranks, width)),
        "\n".join(table(fields, sizes, width=width).lines()),
        "versions  " + ", ".join(f"v{number}" for number in versions),
    ]
    return "\n\n".join(parts) + "\n"


def _ranks(ranks: Result, width: int) -> list[str]:
    fields = ranks.columns()
    at = [place for place, field in enumerate(fields) if field.name in _OF_A_RANK]
    rows = [[row[place] for place in at] for row in values(ranks)]
    return table([fields[place] for place in at], rows, width=width, keys=("rank",)).lines()
