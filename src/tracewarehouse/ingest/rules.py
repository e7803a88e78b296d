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
from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.errors import ParamError

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.duck.engine import Connection

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
    """The rules of one `sql/` folder, and the private DuckDB connection that evaluates them."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._lock = Lock()
        self._known: dict[str, dict[str, tuple[Any, ...]]] = {}

    @cached_property
    def categories(self) -> Mapping[str, tuple[str, str]]:
        """Category as in the file → category in Kineto's current spelling, and its role."""
        rows = self._values("categories", "raw_category, category, role")
        return {str(raw): (str(category), str(role)) for raw, category, role in rows}

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
        rows = self._values("quality_rules", "rule, severity, source")
        return {str(rule): QualityRule(str(severity), str(source)) for rule, severity, source in rows}

    @cached_property
    def work(self) -> tuple[WorkRule, ...]:
        """The operators whose work is computed, by name."""
        rows = self._values("flop_rules", ", ".join(("name", *WorkRule._fields[1:])))
        return tuple(WorkRule(*row) for row in rows)

    @cached_property
    def element_bytes(self) -> Mapping[str, int]:
        """Element type, in lower case and without `c10::` → its size."""
        return dict(self._values("dtypes", "dtype, element_bytes"))

    def uses_tensor_cores(self, names: Sequence[str | None]) -> list[bool | None]:
        """Whether each GEMM or convolution kernel uses tensor cores by its name; None if unknown."""
        rows = self._evaluated(self._matmul_terms, [name or "" for name in names])
        return [None if found is None else found == "True" for (found,) in rows]

    @cached_property
    def step_patterns(self) -> tuple[str, ...]:
        """The patterns for names of annotations that mark steps, in the order of their precedence."""
        return tuple(str(pattern) for _, pattern in self._values("step_rules", "rule_id, pattern"))

    @cached_property
    def gpu_metric_patterns(self) -> tuple[str, ...]:
        """The patterns for names of counters with sampled GPU metrics."""
        return tuple(str(pattern) for _, pattern in self._values("gpu_metric_rules", "rule_id, pattern"))

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
        with self._lock, self._con.cursor() as cursor:
            cursor.register("given", rows)
            return cursor.sql(sql).to_arrow_table()

    def whole_numbers(self, texts: Sequence[str | None]) -> list[int | None]:
        """Each text cast to BIGINT by SQL; None if that fails."""
        rows = self._evaluated("TRY_CAST(text AS BIGINT)", [text or "" for text in texts])
        return [row[0] for row in rows]

    @cache  # noqa: B019 - rules live as long as the process
    def _kernel_terms(self, category: str) -> str:
        rows = self._values("kernel_rules", "pattern, activity, kind", f"category = {quote_text(category)}")
        activity = _first([(str(pattern), activity) for pattern, activity, _ in rows])
        kind = _first([(str(pattern), kind) for pattern, _, kind in rows])
        extracted = f"regexp_extract(text, {quote_text(_SHORT_NAME)}, 1)"
        return f"{activity}, {kind}, regexp_replace({extracted}, {quote_text(_COMPILER_SUFFIX)}, '')"

    @cached_property
    def _matmul_terms(self) -> str:
        rows = self._values("matmul_rules", "pattern, uses_tensor_cores")
        return _first([(str(pattern), uses) for pattern, uses in rows])

    @cached_property
    def _call_terms(self) -> str:
        rows = self._values("call_rules", "action, pattern")
        actions = ("launch", "sync")
        return ", ".join(_matches([str(p) for action, p in rows if action == wanted]) for wanted in actions)

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

        with self._con.cursor() as cursor:
            cursor.register("tw_texts", pa.table({"text": pa.array(texts, pa.string())}))
            rows = cursor.execute(f"SELECT text, {terms} FROM tw_texts").fetchall()
        return {text: tuple(values) for text, *values in rows}

    def _values(self, table: str, columns: str, condition: str = "TRUE") -> list[tuple[Any, ...]]:
        """Rows of a VALUES list, by the first column of its grain."""
        contract = self.catalog.get(table, kind="table")
        sql = f"SELECT {columns} FROM ({contract.body}) WHERE {condition} ORDER BY {contract.grain[0]}"
        with self._con.cursor() as cursor:
            return cursor.execute(sql).fetchall()

    @cached_property
    def _con(self) -> Connection:
        from tracewarehouse.duck.engine import connect

        return connect(threads=1)


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
