"""Constants on `run_id` and `rank` in SQL of users: what it cannot read is neither opened nor downloaded.

DuckDB plans the SQL over empty tables with the columns of the relations. Where its optimizer moves a
condition down to a table, other rows of that table cannot change the answer. A run is left out only if every
scan of a table with `run_id` has such a condition without that run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name, token_texts
from tracewarehouse.duck.engine import (
    Connection,
    Error,
    connect,
    create_table,
    limit_memory,
    query,
    statement_kind,
)
from tracewarehouse.errors import QueryError
from tracewarehouse.limits import Limits
from tracewarehouse.query.relations import Mentioned, parameters

_RUN, _RANK = "run_id", "rank"
_TEXT, _NUMBER = r"'(?:[^']|'')*'", r"-?\d+"
# How DuckDB writes a condition that only some constants meet. An optional one drops only rows that another
# condition drops later.
_CONDITION = (
    r"(?:optional: )?(?:\({name} = {value}\)|\({name} IN \({value}(?:, {value})*\)\)"
    r"|\(\({name} = {value}\)(?: OR \({name} = {value}\))+\))"
)


class Constants(NamedTuple):
    """The runs and ranks whose rows can change an answer; None: all."""

    runs: frozenset[str] | None = None
    ranks: frozenset[int] | None = None


ALL: Final = Constants()


def constants(sql: str, named: Mentioned, limits: Limits) -> Constants:
    """The runs and ranks that the SQL can read; all unless that is certain."""
    texts = token_texts(sql)
    words = {text.strip('"').lower() for text in texts}
    has_constant = any(text[0].isdigit() or text[0] in "$'" or text[1:2] == "'" for text in texts)
    if named.lists or named.has_help or not has_constant or words.isdisjoint((_RUN, _RANK)):
        return ALL
    contracts = sorted((*named.contracts, *named.analyses), key=lambda each: each.version)
    relations = {contract.name: contract for contract in contracts if contract.name in words}
    scans = _scans_of(sql, relations.values(), limits)
    # A relation that the plan does not scan may have been replaced by what is known about it.
    if scans is None or {name for name, _ in scans} != relations.keys():
        return ALL
    by_run = {name for name, each in relations.items() if any(c.name == _RUN for c in each.columns)}
    conditions = [texts for name, texts in scans if name in by_run]
    runs, ranks = _allowed(conditions, _RUN, _TEXT), None
    if all(map(is_of_rank, contracts)):
        ranks = _allowed(conditions, _RANK, _NUMBER)
    return Constants(
        None if runs is None else frozenset(text[1:-1].replace("''", "'") for text in runs),
        None if ranks is None else frozenset(map(int, ranks)),
    )


def is_of_rank(contract: Contract) -> bool:
    """Whether the rows of a rank do not depend on which other ranks are selected."""
    needs_ranks = any(need.startswith("ranks>=") for need in contract.needs)
    # Some rows of `data_quality` compare ranks, and those of `runs` count them.
    return contract.scope == "rank" and not needs_ranks and contract.name not in ("data_quality", "runs")


def _scans_of(
    sql: str, relations: Iterable[Contract], limits: Limits
) -> list[tuple[str, tuple[str, ...]]] | None:
    """Each scan of a relation in DuckDB's plan, with its conditions; None if there is no plan."""
    try:
        with connect(threads=1) as con:
            for contract in relations:
                _create_empty(con, contract)
            # Empty tables say nothing about rows, and a value known only when a query runs is not a constant.
            con.execute("SET disabled_optimizers = 'statistics_propagation,join_filter_pushdown'")
            con.execute("SET enable_external_access = false")
            limit_memory(con, limits.memory_bytes)
            con.execute("SET lock_configuration = true")
            if statement_kind(con, sql) != "SELECT":
                return None
            (row,) = query(con, f"EXPLAIN (FORMAT json) {sql}", limits).to_pylist()
            return [scan for plan in json.loads(row["explain_value"]) for scan in _scans(plan)]
    except (Error, QueryError):
        return None


def _create_empty(con: Connection, contract: Contract) -> None:
    create_table(con, contract)
    if contract.kind == "analysis":
        name = quote_name(contract.name)
        con.execute(f"CREATE MACRO {name}({parameters(contract)}) AS TABLE FROM {name}")


def _scans(plan: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The scans of tables in a plan: name and conditions."""
    details = plan.get("extra_info") or {}
    if "Table" in details:
        filters = details.get("Filters") or ()
        yield details["Table"].rpartition(".")[2], (filters,) if isinstance(filters, str) else tuple(filters)
    for child in plan.get("children", ()):
        yield from _scans(child)


def _allowed(scans: Iterable[Sequence[str]], name: str, value: str) -> frozenset[str] | None:
    """The constants that some scan compares the column with; None if one of them may read others."""
    allowed: set[str] = set()
    pattern = _CONDITION.format(name=name, value=value)
    for conditions in scans:
        # A condition with a line break is more than one of the texts, each with a part of a constant.
        if any(text.count("'") % 2 for text in conditions):
            return None
        matches = [text for text in conditions if re.fullmatch(pattern, text)]
        if not matches:
            return None
        allowed.update(re.findall(value, matches[0]))
    return frozenset(allowed)
