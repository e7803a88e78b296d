"""Contracts: tables, views and analyses as `.sql` files declare them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.params import Param

Kind = Literal["table", "view", "analysis"]
Scope = Literal["rank", "run"]

# Tables that are built from published versions on read.
_BUILT = ("runs", "ranks", "rank_sources")
FOLDERS: dict[str, Kind] = {
    "tables": "table",
    "rules": "table",
    "derived": "table",
    "views": "view",
    "analyses": "analysis",
}
NEEDS = (
    "gpu", "launches", "shapes", "stacks", "modules", "memory_events", "memory_timeline", "collective_args",
    "collectives", "message_sizes", "counters", "kernel_counters", "gpu_metrics", "device_properties", "host",
    "snapshot", "flight_records", "kernel_metrics", "execution_nodes",
)  # fmt: skip
# Needs that `tw derive` meets: each names a derivation and its last table.
DERIVED_NEEDS = ("critical_path", "blame")
# Derivations, each with its last table.
DERIVATIONS = {**{name: name for name in DERIVED_NEEDS}, "graphs": "graph_nodes"}
COUNTED_NEEDS = re.compile(r"(steps|ranks)>=[1-9]\d*")
RUN_TABLES = ("runs", "ranks", "rank_sources")

FILE_NAME = re.compile(r"([a-z][a-z0-9_]*)\.v([1-9]\d*)\.sql")


@dataclass(frozen=True, order=True)
class Ref:
    """A name and a version, `kernels@1`."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Change:
    """The change of a version. A compatible one only adds nullable columns to the previous version."""

    version: int
    text: str
    compatible: bool = False


@dataclass(frozen=True)
class Contract:
    """A table, view or analysis: its inputs, its columns, and its SELECT."""

    kind: Kind
    scope: Scope
    name: str
    version: int
    group: str | None
    summary: str
    requires: tuple[Ref, ...]
    needs: tuple[str, ...]
    grain: tuple[str, ...]
    order: tuple[str, ...]
    params: tuple[Param, ...]
    columns: tuple[Column, ...]
    changes: tuple[Change, ...]
    deprecated: str | None
    transient: bool
    derived: str | None
    definition: int | None
    body: str
    body_line: int
    source: str
    # The SELECT returns rows in `order` by itself: they are checked, and sorted only if they are not.
    in_order: bool = False
    # Tables of later releases without which the analysis still has rows.
    optional: tuple[str, ...] = ()
    # Why there may be no rows although the trace has what the analysis needs.
    empty: str | None = None

    @property
    def is_summary(self) -> bool:
        """Whether no row is about a single event, time, or point of a curve.

        Such rows are different in each run: they have no history.
        """
        units = {column.name: column.unit for column in self.columns}
        keys = [name for name in self.grain if name != "run_id"]
        return not any(key == "position" or key.endswith("_id") or units.get(key) == "ts" for key in keys)

    @property
    def ref(self) -> Ref:
        """Its name and version."""
        return Ref(self.name, self.version)

    @property
    def folder(self) -> str:
        """The folder under `sql/` that holds it: tables, rules, derived, views or analyses."""
        return PurePath(self.source).parts[1]

    @property
    def compatible_since(self) -> int:
        """The oldest version whose consumers can read this one: later ones only add nullable columns."""
        since = self.version
        for change in self.changes:
            if not change.compatible:
                break
            since = change.version - 1
        return since

    @property
    def filled_by_program(self) -> bool:
        """True for a table without a SELECT."""
        return not self.body

    @property
    def is_constant(self) -> bool:
        """True for a table of rules: it reads no table, so it is the same for every run."""
        return self.kind == "table" and bool(self.body) and not self.requires

    @property
    def is_built(self) -> bool:
        """True for a table that is built from published versions on read."""
        return self.kind == "table" and self.name in _BUILT

    @property
    def is_stored(self) -> bool:
        """True for a table whose rows are in Parquet files of the warehouse."""
        return self.kind == "table" and not (self.transient or self.is_built or self.is_constant)


def ref_of(path: PurePath) -> Ref | None:
    """Name and version in a file name, None if it is not the name of a contract file."""
    match = FILE_NAME.fullmatch(path.name)
    return Ref(match[1], int(match[2])) if match else None


def computed_contract(
    name: str,
    *,
    group: str,
    summary: str,
    requires: tuple[Ref, ...],
    grain: tuple[str, ...],
    order: tuple[str, ...],
    columns: tuple[Column, ...],
) -> Contract:
    """The contract of rows that a comparison computes from results: they have no file in `sql/`."""
    return Contract(
        kind="analysis",
        scope="run",
        name=name,
        version=1,
        group=group,
        summary=summary,
        requires=requires,
        needs=(),
        grain=grain,
        order=order,
        params=(),
        columns=columns,
        changes=(Change(1, "First version."),),
        deprecated=None,
        transient=False,
        derived=None,
        definition=None,
        body="",
        body_line=0,
        source=name,
    )
