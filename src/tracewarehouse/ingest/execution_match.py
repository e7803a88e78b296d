"""Whether an execution trace belongs to the trace of its rank: the IDs in both must have the same names.

The rule is that of the view `execution_matches`, which also covers traces that are ingested later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracewarehouse.storage import RankSource, RunVersion, Store

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "execution_trace"
_NODES: Final = "execution_nodes"
_EVENTS: Final = "events"
_OPERATOR: Final = "cpu_op"
_NAMED: Final = (_OPERATOR, "user_annotation")
_RECORD_FUNCTION: Final = re.compile(r'"Record function id"\s*:\s*([0-9]{1,18})\b')
_LEAST_PERCENT: Final = 99
# External IDs are small numbers: a few operators of one name agree by accident.
_LEAST_NAMES: Final = 5


@dataclass(frozen=True)
class Match:
    """IDs in both files and how many have the same name; `by` is the argument of the events with the ID."""

    by: str
    ids: int
    equal: int
    distinct_names: int

    @property
    def is_one_run(self) -> bool:
        """Whether the files are of one run."""
        if not self.ids or 100 * self.equal < _LEAST_PERCENT * self.ids:
            return False
        return self.by == "Record function id" or self.distinct_names >= _LEAST_NAMES

    @property
    def reason(self) -> str:
        """Why the execution trace is refused."""
        if not self.ids:
            return "no ID of the execution trace occurs in the rank's trace: they are not of one run"
        if 100 * self.equal >= _LEAST_PERCENT * self.ids:
            return f"only {self.distinct_names} distinct names have the same ID in both: too few to join them"
        share = 100 * self.equal // self.ids
        return (
            f"{self.equal} of {self.ids} operators with the same ID ({share} %) have the same name"
            " in the rank's trace: they are not of one run"
        )


def mismatches(
    store: Store, version: RunVersion | None, sources: Sequence[RankSource]
) -> Iterator[tuple[RankSource, Match]]:
    """The execution traces among new sources that are not of the run of their rank's trace.

    A rank without a trace takes any.
    """
    traces = {one.rank: one for one in sources if _EVENTS in one.fills}
    for one in sources:
        if one.format != FORMAT:
            continue
        stored = version.rank(one.rank) if version and one.rank not in traces else None
        trace = traces.get(one.rank) or (stored.main if stored and _EVENTS in stored.main.fills else None)
        if trace is not None:
            match = _match(_nodes(store, one), *_recorded(store, trace))
            if not match.is_one_run:
                yield one, match


def _match(nodes: dict[int, str], by: str, recorded: dict[int, str]) -> Match:
    pairs = [(name, recorded[number]) for number, name in nodes.items() if number in recorded]
    equal = [name for name, other in pairs if name == other]
    return Match(by, len(pairs), len(equal), len(set(equal)))


def _nodes(store: Store, source: RankSource) -> dict[int, str]:
    """Record function ID → the name of the first node with it."""
    found: dict[int, str] = {}
    for rows in _rows(store, source, _NODES, ("node_id", "record_function", "name")):
        for row in rows.sort_by("node_id").to_pylist():
            if row["record_function"] is not None:
                found.setdefault(row["record_function"], row["name"] or "")
    return found


def _recorded(store: Store, source: RankSource) -> tuple[str, dict[int, str]]:
    """The argument that holds the IDs, and ID → name of the first operator or annotation with it."""
    by_record: dict[int, str] = {}
    by_external: dict[int, str] = {}
    for rows in _rows(store, source, _EVENTS, ("category", "name", "external_id", "args")):
        for row in _named(rows):
            name = row["name"] or ""
            found = _RECORD_FUNCTION.search(row["args"] or "")
            if found and (number := int(found[1])):
                by_record.setdefault(number, name)
            if row["category"] == _OPERATOR and row["external_id"] is not None:
                by_external.setdefault(row["external_id"], name)
    return ("Record function id", by_record) if by_record else ("External id", by_external)


def _named(rows: pa.Table) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = pc.is_in(rows.column("category"), pa.array(_NAMED))
    found: list[dict[str, Any]] = rows.filter(chosen).to_pylist()
    return found


def _rows(store: Store, source: RankSource, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rank's rows of a stored table, one row group at a time."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for file in source.files:
        if file.table != table:
            continue
        with pq.ParquetFile(store.path(file.path)) as stored:
            for group in range(stored.num_row_groups):
                rows = stored.read_row_group(group, columns=["rank", *columns], use_threads=False)
                yield rows.filter(pc.equal(rows.column("rank"), source.rank)).select(list(columns))
