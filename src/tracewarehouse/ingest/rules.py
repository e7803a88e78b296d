"""Rules that classify names, from the VALUES lists of `sql/`, evaluated once per distinct text.

A regular expression means the same here as in an analysis: Arrow and DuckDB both use RE2. The rules for
kernels in a warehouse, `_tw/kernel_rules.toml`, come before the shipped ones. Only what stores tables reads
that file, so that a broken one stops no reader. A rank keeps the digest of the rules that classified it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, convert, json
from msgspec.structs import asdict, astuple

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.sql_tokens import quote_text, values_list
from tracewarehouse.errors import ParamError, PolicyError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.storage.store import Store

# Maximum number of cached texts per expression, to bound memory.
_REMEMBERED: Final = 200_000
# A function name without return type, template arguments, parameters and compiler suffixes.
_SHORT_NAME: Final = r"^(?:void |static |__global__ )*(?P<name>(?:\(anonymous namespace\)|<unnamed>|[^<(])+)"
_COMPILER_SUFFIX: Final = r"( \[clone [^]]*\]|\.kd| )+$"

KERNEL_RULES_FILE: Final = "_tw/kernel_rules.toml"
_MOST_RULES: Final = 200
_EXAMPLE: Final = """a file of kernel rules has up to 200 of
  [[rule]]
  pattern = '^acme_ring_'        # RE2 (no lookaround), searched anywhere in the name
  kind = "communication"         # or computation, memory, other
  category = "kernel"            # the default; or operator: the one that launched the kernel"""
# Where an error is: a line of TOML, or a rule and its field.
_LINE: Final = late_regex(r"\(at (?:line ([0-9]+)|end)")
_PLACE: Final = late_regex(r"(?:field `(\w+)`)?(?: - at `\$\.rule(?:\[([0-9]+)\])?(?:\.(\w+))?`)?$")


class KernelRule(Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels whose name, or whose operator's, has a match of the pattern (RE2) are of this kind."""

    pattern: str
    kind: Literal["computation", "communication", "memory", "other"]
    category: Literal["kernel", "operator"] = "kernel"


class _File(Struct, forbid_unknown_fields=True):
    rule: tuple[KernelRule, ...] = ()


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
    """The rules of one `sql/` folder, and those of a warehouse's users for kernels."""

    def __init__(self, catalog: Catalog, own: tuple[KernelRule, ...] = ()) -> None:
        self.catalog = catalog
        self.own = own
        self._lock = Lock()
        self._known: dict[str, dict[str, Any]] = {}

    @cached_property
    def categories(self) -> Mapping[str, tuple[str, str]]:
        """Category as in the file → category in Kineto's current spelling, and its role."""
        return {row["raw_category"]: (row["category"], row["role"]) for row in self.rows("categories")}

    @cached_property
    def roles(self) -> Mapping[str, str]:
        """Category in Kineto's spelling → role."""
        return dict(self.categories.values())

    @cached_property
    def quality(self) -> Mapping[str, QualityRule]:
        """Rule of `data_quality` → severity and source."""
        rows = self.rows("quality_rules")
        return {row["rule"]: QualityRule(row["severity"], row["source"]) for row in rows}

    @cached_property
    def work(self) -> tuple[WorkRule, ...]:
        """The operators whose work is computed, by name."""
        rows = (
            WorkRule(name, *[row[field] for field in WorkRule._fields[1:]])
            for row in self.rows("flop_rules")
            for name in row["names"].split(" ")
        )
        return tuple(sorted(rows, key=lambda rule: rule.name))

    @cached_property
    def element_bytes(self) -> Mapping[str, int]:
        """Element type, in lower case and without `c10::` → its size."""
        return {row["dtype"]: row["element_bytes"] for row in self.rows("dtypes")}

    def uses_tensor_cores(self, names: Sequence[str | None]) -> list[bool | None]:
        """Whether each GEMM or convolution kernel uses tensor cores by its name; None if unknown."""
        rows = self.rows("matmul_rules")
        return self._evaluated("matmul", lambda texts: _first(texts, rows, "uses_tensor_cores"), names)

    def check_pattern(self, pattern: str) -> None:
        """Raises ParamError for an invalid regular expression (RE2)."""
        try:
            self.matches(pattern, [""])
        except pa.ArrowInvalid as error:
            raise ParamError(f"{pattern} is not a regular expression: {error}") from error

    def device_kinds(
        self, pairs: Sequence[tuple[str, str | None]]
    ) -> list[tuple[str | None, str | None, str]]:
        """Activity, kind and short name of each (category, name).

        Activity and kind are those of the first matching kernel rule of the category, None without a match. A
        null name counts as empty. The category `uncategorized` has the rules for GPU activities without one.
        """
        kinds: dict[tuple[str, str | None], tuple[Any, ...]] = {}
        by_category: dict[str, list[str | None]] = {}
        for category, name in dict.fromkeys(pairs):
            by_category.setdefault(category, []).append(name)
        for category, names in by_category.items():
            rules = [row for row in self.rows("kernel_rules") if row["category"] == category]
            rows = self._evaluated(f"kind {category}", partial(_kinds, rules), names)
            kinds |= {(category, name): row for name, row in zip(names, rows, strict=True)}
        return [kinds[pair] for pair in pairs]

    def communicate(self, operators: Sequence[str | None]) -> list[bool]:
        """Whether a kernel that one of these operators launches itself is communication."""
        rules = (row["pattern"] for row in self.rows("kernel_rules") if row["category"] == "operator")
        return self.matches("|".join(rules), operators)

    def own_kinds(self, category: str, names: Sequence[str | None]) -> list[str | None]:
        """The kind of kernels with these names, or of operators with them, by the users' rules; else None."""
        rows = [asdict(rule) for rule in self.own if rule.category == category]
        return self._evaluated(f"own {category}", lambda texts: _first(texts, rows, "kind"), names)

    def calls(self, names: Sequence[str | None]) -> list[tuple[bool, bool]]:
        """Whether each function launches work, and whether it waits for a device, according to its name."""
        rows = self.rows("call_rules")
        launch, sync = ([row for row in rows if row["action"] == action] for action in ("launch", "sync"))

        def evaluate(texts: pa.Array) -> Iterable[tuple[bool, bool]]:
            columns = (_first(texts, listed, "action") for listed in (launch, sync))
            return zip(*([action is not None for action in actions] for actions in columns), strict=True)

        return self._evaluated("calls", evaluate, names)

    def matches(self, pattern: str, texts: Sequence[str | None]) -> list[bool]:
        """Whether the pattern (RE2) is found anywhere in each text; False for null."""

        def evaluate(texts: pa.Array) -> list[bool]:
            matched: list[bool] = pc.match_substring_regex(texts, pattern=pattern).to_pylist()
            return matched

        matches = self._evaluated(f"matches {pattern}", evaluate, texts)
        return [text is not None and match for text, match in zip(texts, matches, strict=True)]

    def extracted(self, pattern: str, texts: Sequence[str | None]) -> list[str | None]:
        """The first group of the pattern (RE2) in each text; "" without a match, None for null."""
        matches = self._computed(f"regexp_extract(text, {quote_text(pattern)}, 1)", texts)
        return [None if text is None else match for text, match in zip(texts, matches, strict=True)]

    def numbers(self, texts: Sequence[str | None], type_: str) -> list[Any]:
        """Each text as a number of a type of SQL; None if it is none."""
        return self._computed(f"TRY_CAST(text AS {type_})", texts)

    def query(self, sql: str, rows: pa.Table) -> pa.Table:
        """The result of SQL over the relation `given`, for operations that columns lack (JSON)."""
        from tracewarehouse.duck.engine import executed_rows, shared

        with shared(1) as con:
            con.register("given", rows)
            con.execute(sql)
            return executed_rows(con)

    def _evaluated(
        self, key: str, evaluate: Callable[[pa.Array], Iterable[Any]], texts: Sequence[str | None]
    ) -> list[Any]:
        """The value of each text, null as that of an empty one."""
        keys = [text or "" for text in texts]
        with self._lock:
            value_of = self._known.setdefault(key, {})
            unknown = [text for text in dict.fromkeys(keys) if text not in value_of]
            if unknown:
                value_of |= zip(unknown, evaluate(pa.array(unknown, pa.string())), strict=True)
            values = [value_of[text] for text in keys]
            if len(value_of) > _REMEMBERED:
                value_of.clear()
        return values

    def _computed(self, term: str, texts: Sequence[str | None]) -> list[Any]:
        """The value of the term, SQL over the column `text`, for each text."""

        def evaluate(texts: pa.Array) -> list[Any]:
            given = pa.table({"place": range(len(texts)), "text": texts})
            found: list[Any] = self.query(f"SELECT {term} FROM given ORDER BY place", given)[0].to_pylist()
            return found

        return self._evaluated(term, evaluate, texts)

    @cache  # noqa: B019 - rules live as long as the process
    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a VALUES list, in its order, which is that of their precedence."""
        return values_list(self.catalog.get(table, kind="table").body)


def _kinds(rules: Sequence[Mapping[str, Any]], names: pa.Array) -> Iterable[tuple[Any, Any, str]]:
    """Activity, kind and short name of each name, by the rules of its category."""
    short = pc.struct_field(pc.extract_regex(names, pattern=_SHORT_NAME), "name")
    short = pc.replace_substring_regex(
        pc.fill_null(short, ""), pattern=_COMPILER_SUFFIX, replacement="", max_replacements=1
    )
    columns = (_first(names, rules, field) for field in ("activity", "kind"))
    return zip(*columns, short.to_pylist(), strict=True)


def _first(texts: pa.Array, rules: Sequence[Mapping[str, Any]], field: str) -> list[Any]:
    """The field of the first rule whose pattern is found in each text, else None."""
    values: list[Any] = [None] * len(texts)
    for rule in reversed(rules):
        matches = pc.match_substring_regex(texts, pattern=rule["pattern"])
        for position in pc.indices_nonzero(matches).to_pylist():
            values[position] = rule[field]
    return values


@cache
def rules_of(folder: Path | None = None, own: tuple[KernelRule, ...] = ()) -> Rules:
    """The rules of an `sql/` folder (None: the package's) and of users; one object per process."""
    return Rules(Catalog.load(folder), own)


def kernel_rules_of(store: Store) -> tuple[KernelRule, ...]:
    """The rules of a warehouse, none without the file; raises PolicyError with file, line and remedy."""
    try:
        data = store.objects.get(KERNEL_RULES_FILE)
    except FileNotFoundError:
        return ()
    try:
        rules = convert(tomllib.loads(data.decode("utf-8-sig")), _File).rule
        _check(rules)
    except ValueError as error:
        path, message = store.objects.describe(KERNEL_RULES_FILE), str(error).partition(" - at ")[0]
        line = _line(data, error)
        raise PolicyError(f"{path}:{line}: not a file of kernel rules: {message}", _EXAMPLE) from error
    return rules


def _check(rules: Sequence[KernelRule]) -> None:
    """Raises ValueError for too many rules, and for patterns that are not RE2 or match everything."""
    for index, rule in enumerate(rules):
        place = f" - at `$.rule[{index}].pattern`"
        if index == _MOST_RULES:
            raise ValueError(f"more than {_MOST_RULES} rules; join patterns with |{place}")
        try:
            matches_everything = pc.match_substring_regex(pa.array([""]), rule.pattern)[0].as_py()
        except pa.ArrowInvalid as error:
            raise ValueError(f"not an RE2 pattern: {error}{place}") from error
        if matches_everything:
            raise ValueError(f"the pattern matches an empty text; make it match some names{place}")


def _line(data: bytes, error: ValueError) -> int:
    """The number of the line with the error."""
    if isinstance(error, UnicodeDecodeError):
        return data.count(b"\n", 0, error.start) + 1
    lines = data.decode().splitlines()
    if match := _LINE.search(str(error)):
        return int(match[1] or len(lines))
    tables = [number for number, line in enumerate(lines) if line.lstrip().startswith("[[")]
    place = _PLACE.search(str(error))
    unknown, rule, field = place.groups() if place else (None, None, None)
    first = tables[int(rule)] if rule and int(rule) < len(tables) else 0
    named = (
        number
        for number, line in enumerate(lines)
        if number >= first and line.lstrip("[ ").startswith(unknown or field or "\n")
    )
    return next(named, first) + 1


def digest_of(rules: Sequence[KernelRule]) -> str:
    """16 hex digits of rules in their order; empty for none."""
    return sha256(json.encode([astuple(rule) for rule in rules])).hexdigest()[:16] if rules else ""
