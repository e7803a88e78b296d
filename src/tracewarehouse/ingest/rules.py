"""Rules that classify names, from the VALUES lists of `sql/`, evaluated once per distinct text.

DuckDB evaluates the patterns, so that a regular expression means the same here as in an analysis (RE2).
Results are cached: a call without new texts runs no query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.sql_tokens import quote_text, values_list
from tracewarehouse.errors import ParamError

if TYPE_CHECKING:
    import pyarrow as pa

# Maximum number of cached texts per expression, to bound memory.
_REMEMBERED: Final = 200_000
# A function name without return type, template arguments, parameters and compiler suffixes.
_SHORT_NAME: Final = r"^(?:void |static |__global__ )*((?:\(anonymous namespace\)|[^<(])+)"
_COMPILER_SUFFIX: Final = r"( \[clone [^]]*\]|\.kd| )+$"


class QualityRule(NamedTuple):
    """Severity of a finding, and its source: the file reader ("file") or the events ("events")."""

    severity: str
    source: str


class WorkRule(NamedTuple):
    """A row of `flop_rules`."""

    name: str
    is_prefix: bool
    leaf_only: bool
    family: str
    formula: str
    first_input: int
    causal_flag: int | None = None
    causal_mask: str | None = None
    window_at: int | None = None


class Rules:
    """The rules of one `sql/` folder."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._lock = Lock()
        self._known: dict[str, dict[str, tuple[Any, ...]]] = {}

    @cached_property
    def categories(self) -> Mapping[str, tuple[str, str]]:
        """Category as in the file → category in Kineto's current spelling, and its role."""
        return {row["raw_category"]: (row["category"], row["role"]) for row in self._list("categories")}

    @cached_property
    def roles(self) -> Mapping[str, str]:
        """Category in Kineto's spelling → role."""
        return dict(self.categories.values())

    def category(self, raw: str) -> tuple[str, str] | None:
        """Category and role of a category as in the file; None if unknown."""
        return self.categories.get(raw)

    @cached_property
    def quality(self) -> Mapping[str, QualityRule]:
        """Rule of `data_quality` → severity and source."""
        rows = self._list("quality_rules")
        return {row["rule"]: QualityRule(row["severity"], row["source"]) for row in rows}

    @cached_property
    def work(self) -> tuple[WorkRule, ...]:
        """The operators whose work is computed, by name."""
        rows = (
            WorkRule(name, *[row[field] for field in WorkRule._fields[1:]])
            for row in self._list("flop_rules")
            for name in row["names"].split(" ")
        )
        return tuple(sorted(rows, key=lambda rule: rule.name))

    @cached_property
    def element_bytes(self) -> Mapping[str, int]:
        """Element type, in lower case and without `c10::` → its size."""
        return {row["dtype"]: row["element_bytes"] for row in self._list("dtypes")}

    def uses_tensor_cores(self, names: Sequence[str | None]) -> list[bool | None]:
        """Whether each GEMM or convolution kernel uses tensor cores by its name; None if unknown."""
        rows = self._evaluated(self._matmul_terms, [name or "" for name in names])
        return [None if found is None else found == "True" for (found,) in rows]

    @cached_property
    def step_patterns(self) -> tuple[str, ...]:
        """The patterns for names of annotations that mark steps, in the order of their precedence."""
        return tuple(row["pattern"] for row in self._list("step_rules"))

    @cached_property
    def gpu_metric_patterns(self) -> tuple[str, ...]:
        """The patterns for names of counters with sampled GPU metrics."""
        return tuple(row["pattern"] for row in self._list("gpu_metric_rules"))

    def check_pattern(self, pattern: str) -> None:
        """Raises ParamError for an invalid regular expression (RE2)."""
        from tracewarehouse.duck import engine

        try:
            self.matches(pattern, [""])
        except engine.Error as error:
            raise ParamError(f"{pattern} is not a regular expression: {error}") from error

    def device_kinds(
        self, pairs: Sequence[tuple[str, str | None]]
    ) -> list[tuple[str | None, str | None, str]]:
        """Activity, kind and short name of each (category, name).

        Activity and kind are those of the first matching kernel rule of the category, None without a match. A
        null name counts as empty. The category `uncategorized` has the rules for GPU activities without one.
        """
        found: dict[tuple[str, str | None], tuple[Any, ...]] = {}
        by_category: dict[str, list[str | None]] = {}
        for category, name in dict.fromkeys(pairs):
            by_category.setdefault(category, []).append(name)
        for category, names in by_category.items():
            texts = [name or "" for name in names]
            rows = self._evaluated(self._kernel_terms(category), texts)
            found |= {(category, name): row for name, row in zip(names, rows, strict=True)}
        return [found[pair] for pair in pairs]

    def calls(self, names: Sequence[str | None]) -> list[tuple[bool, bool]]:
        """Whether each function launches work, and whether it waits for a device, according to its name."""
        rows = self._evaluated(self._call_terms, [name or "" for name in names])
        return [
            (name is not None and bool(launch), name is not None and bool(sync))
            for name, (launch, sync) in zip(names, rows, strict=True)
        ]

    def matches(self, pattern: str, texts: Sequence[str | None]) -> list[bool]:
        """Whether the pattern (RE2) is found anywhere in each text; False for null."""
        rows = self._evaluated(_matches([pattern]), [text or "" for text in texts])
        return [text is not None and bool(row[0]) for text, row in zip(texts, rows, strict=True)]

    def extracted(self, pattern: str, texts: Sequence[str | None], group: int = 0) -> list[str | None]:
        """The first match of a group of the pattern (RE2) in each text; "" without a match, None for null."""
        term = f"regexp_extract(text, {quote_text(pattern)}, {group})"
        rows = self._evaluated(term, [text or "" for text in texts])
        return [None if text is None else str(row[0]) for text, row in zip(texts, rows, strict=True)]

    def numbers(self, texts: Sequence[str | None]) -> list[float | None]:
        """Each text cast to DOUBLE by SQL; None if that fails."""
        rows = self._evaluated("TRY_CAST(text AS DOUBLE)", [text or "" for text in texts])
        return [row[0] for row in rows]

    def query(self, sql: str, rows: pa.Table) -> pa.Table:
        """The result of SQL over the relation `given`, for operations that columns lack (JSON)."""
        from tracewarehouse.duck.engine import executed_rows, shared

        with shared(1) as con:
            con.register("given", rows)
            con.execute(sql)
            return executed_rows(con)

    def whole_numbers(self, texts: Sequence[str | None]) -> list[int | None]:
        """Each text cast to BIGINT by SQL; None if that fails."""
        rows = self._evaluated("TRY_CAST(text AS BIGINT)", [text or "" for text in texts])
        return [row[0] for row in rows]

    @cache  # noqa: B019 - rules live as long as the process
    def _kernel_terms(self, category: str) -> str:
        rows = [row for row in self._list("kernel_rules") if row["category"] == category]
        activity, kind = (
            _first([(row["pattern"], row[name]) for row in rows]) for name in ("activity", "kind")
        )
        extracted = f"regexp_extract(text, {quote_text(_SHORT_NAME)}, 1)"
        return f"{activity}, {kind}, regexp_replace({extracted}, {quote_text(_COMPILER_SUFFIX)}, '')"

    @cached_property
    def _matmul_terms(self) -> str:
        return _first([(row["pattern"], row["uses_tensor_cores"]) for row in self._list("matmul_rules")])

    @cached_property
    def _call_terms(self) -> str:
        rows = self._list("call_rules")
        return ", ".join(
            _matches([row["pattern"] for row in rows if row["action"] == action])
            for action in ("launch", "sync")
        )

    def _evaluated(self, terms: str, texts: Sequence[str]) -> list[tuple[Any, ...]]:
        """The values of the terms, SQL over the column `text`, for each text."""
        with self._lock:
            known = self._known.setdefault(terms, {})
            new = [text for text in dict.fromkeys(texts) if text not in known]
            if new:
                known |= self._computed(terms, new)
            rows = [known[text] for text in texts]
            if len(known) > _REMEMBERED:
                known.clear()
        return rows

    def _computed(self, terms: str, texts: list[str]) -> dict[str, tuple[Any, ...]]:
        import pyarrow as pa

        from tracewarehouse.duck.engine import shared

        with shared(1) as con:
            con.register("tw_texts", pa.table({"text": pa.array(texts, pa.string())}))
            rows = con.execute(f"SELECT text, {terms} FROM tw_texts").fetchall()
        return {text: tuple(values) for text, *values in rows}

    def _list(self, table: str) -> list[dict[str, Any]]:
        """The rows of a VALUES list, in its order, which is that of the rules."""
        return values_list(self.catalog.get(table, kind="table").body)


def _matches(patterns: Iterable[str]) -> str:
    """SQL: whether `text` matches one of the patterns. Constant patterns are compiled once, not per row."""
    return "(" + " OR ".join(f"regexp_matches(text, {quote_text(p)})" for p in patterns) + ")"


def _first(ruled: Sequence[tuple[str, object]]) -> str:
    """SQL: the value of the first pattern that `text` matches, else NULL."""
    if not ruled:
        return "CAST(NULL AS VARCHAR)"
    cases = (f"WHEN {_matches([pattern])} THEN {quote_text(str(value))}" for pattern, value in ruled)
    return f"CASE {' '.join(cases)} END"


@cache
def rules_of(folder: Path | None = None) -> Rules:
    """The rules of an `sql/` folder (None: the package's); one object per process."""
    return Rules(Catalog.load(folder))
