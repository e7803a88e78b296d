"""What-if estimates: the length and critical path of a scope if parts of it ran faster or slower."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from math import prod
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.compare.metric.expression import Reader
from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.derive.critical_path import (
    NAME,
    ScopeRequest,
    ScopeRow,
    attach,
    build,
    check_scopes,
    derivation_sources,
    longest_paths,
    path_edges,
    scope_names,
    scope_rows,
)
from tracewarehouse.duck.engine import Connection, connect
from tracewarehouse.errors import ParamError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Field, Result, from_rows
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.temp_folders import temporary_folder

# What can be scaled: everything, all GPU activities, or a category of `critical_path_breakdown`.
TARGETS = ("all", "kernels", "host", "host_gap", "launch", "sync", "kernel_gap", "earlier", "unknown_wait")
FILTERS = ("kind", "name", "op")
KINDS = ("computation", "communication", "memory", "other")
_WORD = late_regex(r"[a-z_]+")
_NUMBER = late_regex(r"\d+(?:\.\d+)?|\.\d+")
_EXAMPLES = "kernels=0.5, kernels[kind=communication]=0, host[op=aten::mm]=0.8, kernels[name='*gemm*']=2"


class Scale(Struct, frozen=True):
    """Parts of a graph, and the factor for their time. A `*` in `name` and `op` matches any text."""

    what: str
    factor: Fraction
    kind: str | None = None
    name: str | None = None
    op: str | None = None

    @property
    def condition(self) -> str:
        """A SQL condition on the edges `part`: their type, and category, kind and name of their activity."""
        terms = []
        if self.what == "kernels":
            terms.append("part.type = 'kernel'")
        elif self.what != "all":
            terms.append(f"part.category = {quote_text(self.what)}")
        if self.kind is not None:
            terms.append(f"part.kind = {quote_text(self.kind)}")
        if self.name is not None:
            terms.append(f"regexp_full_match(part.name, {quote_text(pattern(self.name))})")
        return f"coalesce({' AND '.join(terms) or 'TRUE'}, FALSE)"


def pattern(text: str) -> str:
    """A regular expression (RE2) for a text in which `*` matches any text."""
    return "(?s)" + ".*".join(re.escape(part) for part in text.split("*"))


def parse(text: str) -> Scale:
    """The scale in a text; raises ParamError with the position of the error."""
    return _Reader(text).scale()


class _Reader(Reader):
    kind, examples, failure = "scale", _EXAMPLES, ParamError

    def scale(self) -> Scale:
        target = self.word("what to scale", TARGETS)
        filters = self.filters() if self.accept("[") else {}
        if not self.accept("="):
            raise self.error("expected `=` and a factor" if filters else "expected `[` or `=`")
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise self.error("expected a factor, for example 0.5")
        if match.end() < len(self.text):
            raise self.error("unexpected text after the factor", at=match.end())
        return Scale(target, Fraction(Decimal(match[0])), **filters)

    def filters(self) -> dict[str, str]:
        """`kind=…,name=…]`"""
        filters: dict[str, str] = {}
        while True:
            start = self.at
            key = self.word("a filter", FILTERS)
            if key in filters:
                raise self.error(f"duplicate filter: {key}", at=start)
            if not self.accept("="):
                raise self.error("expected `=`")
            start = self.at
            filters[key] = self.value()
            if key == "kind" and filters[key] not in KINDS:
                raise self.error(f"expected a kind of GPU activity: {', '.join(KINDS)}", at=start)
            if self.accept("]"):
                return filters
            if not self.accept(","):
                raise self.error("expected `,` or `]`")

    def word(self, what: str, known: tuple[str, ...]) -> str:
        match = _WORD.match(self.text, self.at)
        if match is None or match[0] not in known:
            raise self.error(f"expected {what}: {', '.join(known)}")
        self.at = match.end()
        return match[0]

    def value(self) -> str:
        """Quoted text, or text up to the next `,` or `]`."""
        if (quoted := self.quoted()) is not None:
            return quoted
        value = re.compile(r"[^,\]]*").match(self.text, self.at)[0]  # type: ignore[index]
        if not value:
            raise self.error("expected a value")
        self.at += len(value)
        return value


LENGTH = "length"
UNEXPLAINED = ("earlier", "unknown_wait")  # categories without a recorded dependency in the scope
_MUCH_UNEXPLAINED = Fraction(1, 5)  # of a path: more is worth a notice

# Every edge with its activity; `scales` has a bit for each scale that applies to it.
_EDGES = """
WITH
  part AS (
    SELECT
      edge.scope, edge.from_node, edge.to_node, edge.is_limiting, edge.weight_ns, edge.type, edge.category,
      edge.event_id, own.name, kernels.kind,
      coalesce(kernels.op_id, runtime.op_id, CASE WHEN own.category = 'cpu_op' THEN own.event_id END) AS op_id
    FROM critical_edges AS edge
    LEFT JOIN events AS own ON own.event_id = edge.event_id
    LEFT JOIN kernels ON kernels.event_id = edge.event_id
    LEFT JOIN runtime ON runtime.event_id = edge.event_id
  )
SELECT
  part.from_node, part.to_node, part.weight_ns, {scales} AS scales, part.category, op.name AS op, part.name
FROM part
LEFT JOIN events AS op ON op.event_id = part.op_id
WHERE part.scope = ?
ORDER BY part.to_node, part.is_limiting DESC, part.from_node, part.type
"""

# Activities within operators of a name: host slices by nesting, GPU activities by their launch.
_WITHIN_OPERATOR = """
CREATE TABLE within_{number} AS
WITH
  op AS (
    SELECT pre, post
    FROM events
    WHERE category = 'cpu_op' AND pre IS NOT NULL AND regexp_full_match(name, ?)
  ),
  nested AS (
    SELECT event_id, pre FROM events WHERE pre IS NOT NULL
    UNION ALL
    SELECT kernels.event_id, call.pre
    FROM kernels
    JOIN events AS call ON call.event_id = kernels.runtime_id
  )
SELECT DISTINCT nested.event_id
FROM nested
JOIN op ON op.pre <= nested.pre AND op.post >= nested.pre
"""


_FIELDS = (
    *(Field("run_id", "VARCHAR"), Field("rank", "INTEGER"), Field("scope", "VARCHAR")),
    *(Field("category", "VARCHAR"), Field("op", "VARCHAR"), Field("name", "VARCHAR")),
    *(Field("base_ns", "BIGINT", "ns"), Field("new_ns", "BIGINT", "ns"), Field("saved_ns", "BIGINT", "ns")),
    Field("period_ns", "BIGINT", "ns"),  # of a step; None in other rows than that of its length
)


def fixes_of(run: Selection, request: ScopeRequest, by: str) -> Result:
    """The step time after each fix, from what is stored: the analysis `what_if`.

    Raises ParamError if scopes or operators are requested, which need scales.
    """
    if request != ScopeRequest() or by != "category":
        hint = hints.fill("add {}", hints.option("scale", "all=1"))
        raise ParamError("steps, annotations, the entire trace and by need a scale", hint)
    return run.analyze("what_if")


def whatif_of(run: Selection, request: ScopeRequest, scales: Iterable[str], by: str) -> Result:
    """The requested scopes of the only run of a selection with their parts scaled; nothing is stored.

    Each node is reached when its last dependency is done, so the length is that of a longest path, and what
    was overlapped before may become critical. A scope lasts from its start on the host to the end of its last
    GPU activity, so its length is not the step's period (`period_ns`): steps overlap. Parts that match
    several scales are scaled by all of them.
    Raises UnknownName, ParamError.
    """
    parsed = [parse(scale) for scale in scales]
    readable = run.readable(derivation_sources(run.catalog, NAME))
    selected = readable.selected[0]
    if by not in ("category", "op"):
        raise ParamError(f"unknown by {by!r}", "use category or op")
    scopes = scope_rows(run.store, run.catalog, selected, request)
    by_rank = {rank: [row for row in scopes if row["rank"] == rank] for rank in selected.ranks}
    notices = check_scopes(selected, request, by_rank)
    columns = [
        number for number, field in enumerate(_FIELDS) if by == "op" or field.name not in ("op", "name")
    ]
    rows = [
        [row[number] for number in columns]
        for rank, of_rank in by_rank.items()
        if of_rank
        for row in _rank_rows(run, SelectedRun(selected.version, (rank,)), of_rank, parsed, by)
    ]
    result = from_rows([_FIELDS[number] for number in columns], rows)
    notices = (*readable.notices, *notices, *_unexplained(result.rows()))
    return replace(result, notices=notices, provenance=replace(result.provenance, runs=(selected.selector,)))


def _unexplained(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A notice if recorded dependencies leave much of a path unexplained."""
    lengths: dict[tuple[int, str], int] = {}
    unexplained: Counter[tuple[int, str]] = Counter()
    for row in rows:
        scope = row["rank"], row["scope"]
        if row["category"] == LENGTH:
            lengths[scope] = row["base_ns"]
        elif row["category"] in UNEXPLAINED:
            unexplained[scope] += row["base_ns"]
    shares = {scope: Fraction(unexplained[scope], ns) for scope, ns in lengths.items() if ns}
    large_shares = {scope: share for scope, share in shares.items() if share > _MUCH_UNEXPLAINED}
    if large_shares:
        (rank, name), share = max(large_shares.items(), key=lambda scope_share: scope_share[1])
        yield (
            f"waits of unknown cause are up to {100 * float(share):.0f} % of the path (rank {rank}, {name}): "
            "scaling does not change them, so the estimates are rough"
        )


def _rank_rows(
    run: Selection, selected: SelectedRun, scopes: Sequence[ScopeRow], scales: Sequence[Scale], by: str
) -> Iterator[tuple[object, ...]]:
    """Rows with the columns _FIELDS."""
    with temporary_folder() as folder, closing(connect(temp_directory=folder)) as con:
        attach(con, run.store, run.catalog, selected)
        build(con, run.catalog, scopes, last="critical_edges")
        bits = [_bit_sql(con, number, scale) for number, scale in enumerate(scales)]
        periods = {row["scope"]: row["period_ns"] for row in scopes}
        sql = _EDGES.format(scales=" + ".join(bits) or "0")
        for scope in scope_names(scopes):
            edges = con.execute(sql, [scope]).fetchall()
            graph = _Graph([row[:3] for row in edges], [row[3] for row in edges], [row[4:] for row in edges])
            for part, (base, new) in graph.compare(scales, by).items():
                period_ns = periods.get(scope) if part[0] == LENGTH else None
                yield (selected.run, selected.ranks[0], scope, *part, base, new, base - new, period_ns)


def _bit_sql(con: Connection, number: int, scale: Scale) -> str:
    """SQL of 2^number if the scale applies to an edge, else 0."""
    condition = scale.condition
    if scale.op is not None:
        con.execute(_WITHIN_OPERATOR.format(number=number), [pattern(scale.op)])
        condition += f" AND part.event_id IN (SELECT event_id FROM within_{number})"
    return f"CASE WHEN {condition} THEN {1 << number} ELSE 0 END"


Part = tuple[str, str | None, str | None]


class _Graph(Struct, frozen=True):
    """The edges of a scope in time order."""

    edges: list[tuple[int, int, int]]
    scales: list[int]
    parts: list[Part]

    def compare(self, scales: Sequence[Scale], by: str) -> dict[Part, tuple[int, int]]:
        """Part → its time on the critical path, unscaled and scaled; the length first, then by time."""
        factors = {
            bits: prod(
                (scale.factor for number, scale in enumerate(scales) if bits >> number & 1), start=Fraction(1)
            )
            for bits in set(self.scales)
        }
        scaled = [
            (source, target, _scaled(weight, factors[bits]))
            for (source, target, weight), bits in zip(self.edges, self.scales, strict=True)
        ]
        base, new = self._path(self.edges, by), self._path(scaled, by)
        length: Part = (LENGTH, None, None)
        times = {length: (base.total(), new.total())}
        parts = sorted(base.keys() | new.keys(), key=lambda part: (-new[part], -base[part], str(part)))
        return times | {part: (base[part], new[part]) for part in parts if part[0] != "end"}

    def _path(self, edges: Sequence[tuple[int, int, int]], by: str) -> Counter[Part]:
        """Part → its time on the longest path."""
        last_node = edges[-1][1]
        _, last_edge = longest_paths(edges, last_node)
        times: Counter[Part] = Counter()
        for number in path_edges(edges, last_edge, last_node):
            part = self.parts[number]
            times[part if by == "op" else (part[0], None, None)] += edges[number][2]
        return times


def _scaled(weight: int, factor: Fraction) -> int:
    """The scaled weight, rounded half up to whole ns."""
    return (2 * weight * factor.numerator + factor.denominator) // (2 * factor.denominator)
