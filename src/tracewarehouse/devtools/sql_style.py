"""Checks the style of SQL bodies on tokens, and texts for rejected words; each violation has its remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from msgspec import Struct

from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import UNNAMED_COLUMNS, Token, tokens


class Violation(Struct, frozen=True):
    """A violation of a rule, with its location and remedy."""

    location: str
    message: str
    remedy: str


# Keywords that DuckDB also accepts as names, but that the bodies use only as keywords.
ALWAYS_UPPER = frozenset(
    ("by", "over", "partition", "join", "left", "right", "full", "inner", "outer", "cross", "asof")
    + ("semi", "anti", "natural", "is", "like", "ilike", "between", "exists", "values", "interval")
    + ("preceding", "following", "unbounded", "nulls", "recursive", "try_cast", "tablesample")
)
TYPES = frozenset(
    ("bigint", "integer", "smallint", "tinyint", "ubigint", "uinteger", "hugeint", "uhugeint", "double")
    + ("boolean", "varchar", "json", "blob", "decimal", "timestamp", "map", "struct")
)
NOT_REPEATABLE = frozenset(
    ("now", "current_timestamp", "current_date", "current_time", "localtimestamp", "localtime", "today")
    + ("get_current_timestamp", "get_current_time", "transaction_timestamp", "random", "setseed", "uuid")
    + ("gen_random_uuid", "uuidv4", "uuidv7", "nextval", "txid_current")
)
NOT_EXACT = {
    "avg": "write sum(x) / count(x), the sum of integers",
    "mean": "write sum(x) / count(x), the sum of integers",
    "median": "write quantile_disc(x, 0.5)",
    "quantile_cont": "write quantile_disc(x, q)",
    "percentile_cont": "write quantile_disc(x, q)",
} | dict.fromkeys(
    ("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "sem"),
    "take the square root of exact sums in HUGEINT, once, at the end",
)
INEXACT = re.compile(
    r"approx_\w+|corr|covar_\w+|regr_\w+|skewness|kurtosis(_pop)?|mad|favg|fsum|sumkahan|kahan_sum"
    r"|geo(metric_)?mean|entropy|reservoir_quantile"
)
SNAKE = re.compile(r"[a-z_][a-z0-9_]*")
COMPARISONS = frozenset(("<", ">", "<=", ">=", "BETWEEN"))
FACTORS = frozenset(("*", "/", "//", "%"))
PLAIN_NUMBERS = frozenset(("0", "1", "2"))

Rule = Callable[[Contract, Sequence[Token]], Iterator[tuple[Token, str, str]]]


def check_style(
    contract: Contract, required: Iterable[Contract], keywords: Mapping[str, str]
) -> list[Violation]:
    """The violations of a SELECT, by line; `keywords` maps DuckDB's keywords to their category."""
    body = tokens(contract.body, contract.body_line)
    hits = [hit for rule in RULES for hit in rule(contract, body)]
    hits += _spelling(body, keywords)
    hits += _windows(body, _keys((contract, *required), body))
    hits.sort(key=lambda hit: hit[0].line)
    return [Violation(f"{contract.source}:{token.line}", message, remedy) for token, message, remedy in hits]


def _near(body: Sequence[Token], index: int) -> str:
    """The text at an index in upper case; empty outside the range."""
    return body[index].text.upper() if 0 <= index < len(body) else ""


def _wildcards(_: Contract, body: Sequence[Token]) -> Iterator[tuple[Token, str, str]]:
    for index, token in enumerate(body):
        before = _near(body, index - 1)
        is_star = token.text == "*" and (before in ("SELECT", "DISTINCT", ",", ".") or index == 0)
        if is_star or token.text == "*" and before == "(" and _near(body, index - 2) == "COLUMNS":
            yield token, "SELECT * hides which columns are read", "name the columns"
        if token.text.upper() == "FROM" and before == "(":
            yield token, "FROM without SELECT hides which columns are read", "write SELECT and the columns"
        is_columns_call = _near(body, index + 1) == "(" and _near(body, index + 2) == "*"
        if token.kind == "word" and token.text.upper() in UNNAMED_COLUMNS and not is_columns_call:
            yield token, f"{token.text.upper()} hides which columns are read", "name the columns"


def _truncations(_: Contract, body: Sequence[Token]) -> Iterator[tuple[Token, str, str]]:
    for index, token in enumerate(body):
        word = token.text.upper() if token.kind == "word" else ""
        if word in ("LIMIT", "OFFSET", "FETCH", "TABLESAMPLE") or (
            word == "SAMPLE" and _near(body, index - 1) == "USING"
        ):
            yield token, f"{word} truncates the result", "remove it: output options limit the rows"
        if word == "ORDER" and token.depth == 0:
            yield token, "ORDER BY at the top level", 'remove it and write order = ["…"] in the front matter'


def _functions(_: Contract, body: Sequence[Token]) -> Iterator[tuple[Token, str, str]]:
    for index, token in enumerate(body):
        if token.kind != "word" or _near(body, index - 1) == ".":
            continue
        name, is_called = token.text.lower(), _near(body, index + 1) == "("
        bare = name.startswith(("current_", "local"))
        if name in NOT_REPEATABLE and (is_called or bare):
            yield token, f"{name} is not deterministic", "read the value from a table or a parameter"
        elif is_called and (name in NOT_EXACT or INEXACT.fullmatch(name)):
            remedy = NOT_EXACT.get(name, "use integers and exact functions; divide once, at the end")
            yield token, f"{name}() is not exact", remedy


def _constants(_: Contract, body: Sequence[Token]) -> Iterator[tuple[Token, str, str]]:
    for index, token in enumerate(body):
        if token.kind != "number" or token.text in PLAIN_NUMBERS:
            continue
        neighbors = {_near(body, index - 1), _near(body, index + 1)}
        if neighbors & FACTORS and re.fullmatch(r"10+", token.text):
            continue  # a conversion of units
        if neighbors & COMPARISONS or _near(body, index - 3) == "BETWEEN":
            remedy = "make it a parameter in [params], with a unit"
            yield token, f"{token.text} is a tuning constant", remedy


def _older_shells(contract: Contract, body: Sequence[Token]) -> Iterator[tuple[Token, str, str]]:
    """Expressions that DuckDB 2 stores in a file in a form that the DuckDB 1.5 shell cannot read."""
    for at, token in enumerate(body):
        if contract.kind == "table" or token.text not in ("lead", "lag") or _near(body, at + 1) != "(":
            continue
        inside = body[at + 2 :]
        end = next((k for k, each in enumerate(inside) if each.depth == token.depth), len(inside))
        if any(each.text == "," and each.depth == token.depth + 1 for each in inside[:end]):
            remedy = f"write coalesce({token.text}(x) OVER …, other)"
            yield token, f"{token.text} with several arguments cannot be read by the DuckDB 1.5 shell", remedy


def _quadratic(_: Contract, body: Sequence[Token]) -> Iterator[tuple[Token, str, str]]:
    """`last_value(x IGNORE NULLS) OVER …`: for each row, DuckDB goes back to the last value."""
    for index, token in enumerate(body):
        if token.text.upper() == "IGNORE" and _near(body, index + 1) == "NULLS":
            remedy = "take a running max() of the row number and the value, packed into one number"
            yield token, "IGNORE NULLS takes quadratic time where values are rare", remedy


RULES: tuple[Rule, ...] = (_wildcards, _truncations, _functions, _constants, _older_shells, _quadratic)


def _spelling(body: Sequence[Token], keywords: Mapping[str, str]) -> Iterator[tuple[Token, str, str]]:
    for index, token in enumerate(body):
        if token.kind not in ("word", "quoted") or token.kind == "quoted" and _near(body, index - 1) == ".":
            continue  # a quoted key of a struct is spelled as in the trace
        text, name = token.text.strip('"'), token.text.strip('"').lower()
        before = _near(body, index - 1)
        if token.kind == "word" and text != text.upper() and before != ".":
            is_reserved = keywords.get(name) == "reserved" or name in ALWAYS_UPPER
            is_function = name in ("left", "right") and _near(body, index + 1) == "("
            if before == "::" and name in TYPES or is_reserved and not is_function:
                yield token, f"keyword {text} is not upper case", f"write {text.upper()}"
                continue
        is_upper_word = token.kind == "word" and text == text.upper() and (name in keywords or name in TYPES)
        if not SNAKE.fullmatch(text) and not is_upper_word:
            snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
            yield token, f"{text} is not snake case", f"write {snake}"


def _keys(contracts: Iterable[Contract], body: Sequence[Token]) -> set[str]:
    """Names that identify rows: grain and id columns, row numbers, and their aliases."""
    keys = {name for contract in contracts for name in contract.grain}
    keys |= {column.name for contract in contracts for column in contract.columns if column.unit == "id"}
    keys -= {"run_id", "rank"}
    numbered: set[int] = set()
    for index, token in enumerate(body):
        if token.text == "row_number":
            numbered.add(token.depth)
        elif token.text in (",", "FROM"):
            numbered.discard(token.depth)
        elif token.text == "AS" and (_near(body, index - 1).lower() in keys or token.depth in numbered):
            keys.add(_near(body, index + 1).lower())
    return keys


def _windows(body: Sequence[Token], keys: Collection[str]) -> Iterator[tuple[Token, str, str]]:
    for index, token in enumerate(body):
        is_frame = _near(body, index + 1) in ("BETWEEN", "UNBOUNDED", "CURRENT") or (
            index + 1 < len(body) and body[index + 1].kind in ("number", "param")
        )
        if token.text != "ROWS" or not is_frame:
            continue
        order = _order_of(body, index)
        if order is not None and not order & set(keys):
            remedy = "end its ORDER BY with a unique column such as event_id"
            yield token, "the order of a window with ROWS is not unique", remedy


def _order_of(body: Sequence[Token], rows: int) -> set[str] | None:
    """The words of the ORDER BY before a ROWS; None if the window extends a named one.

    A window without an order has the rows in input order: that of the last ORDER BY above it.
    """
    start = rows
    while start and not (body[start].text == "(" and body[start].depth == body[rows].depth - 1):
        start -= 1
    words = [token.text for token in body[start:rows]]
    if words == ["("]:
        words = _last_order(body[:start])
    if "ORDER" in words:
        return set(words[words.index("ORDER") :])
    return None if len(words) > 1 and words[1] != "PARTITION" else set()


def _last_order(body: Sequence[Token]) -> list[str]:
    """The words of the last ORDER BY, up to its closing parenthesis; none without an ORDER BY."""
    last = max((index for index, token in enumerate(body) if token.text == "ORDER"), default=len(body))
    within = takewhile(lambda token: token.depth >= body[last].depth, body[last:])
    return ["(", *(token.text for token in within)]


# Files whose entire text is checked, relative to the checkout.
CHECKED: Final = (
    "sql/**/*.sql",
    "src/**/*.py",
    "src/**/*.html",
    "notebooks/**/*.py",
    "notebooks/**/*.md",
    "README.md",
    "CHANGELOG.md",
    ".github/CONTRIBUTING.md",
    "tests/**/*.py",
    "tests/**/*.md",
    "tests/goldens/**/*.golden",
)
# Files that are not checked: this list and its tests.
NOT_CHECKED: Final = (
    "src/tracewarehouse/devtools/sql_style.py",
    "tests/unit/devtools/test_wording.py",
)

# A word, as a regular expression → what to write instead. An underscore is the end of a word.
WORDS: Final[Mapping[str, str]] = {
    r"told|tells?(?!\()|telling": "reported, known, the noun of the thing",
    "anew": "again",
    "asks|asked": "requires, requested, queried",
    "grave|graver|gravest": "severe, severity",
    "mend|mends|mended|mending": "repair",
    "nobody|whoever": "no process, no caller, each caller",
    "stands? around|stands?(?!-)|stood": "encloses, is, contains",
    "takes? in|taken in|took in": "ingest",
    "by way of": "through",
    "for want of": "because there is no",
    "added up": "sum",
    "works out|worked out|working out": "compute",
    "gives? back|gave back|given back": "returns, frees",
    "is there already": "already exists",
    "nothing hides|nothing hid": "exposed",
    "(?<!there )is no(?! longer)": "is not a",
    "at whose": "name the thing",
    "of its own|of their own": "separate",
    "in mid-": "in steady state",
    "of old": "earlier",
    "likewise": "also",
    "so many": "N, the number of",
    "plant|plants|planted": "inject",
    "judged|judges?": "analyzed, tested",
    "gpu rows?": "GPU activity",
    "arrows": "flows",
    "stretch|stretches": "interval",
    "asked for|asks? for": "requested",
    "knobs?": "setting",
    "the house": "the package, the project",
    # British spellings.
    r"analyse[dr]?|analysing": "analyze",
    "artefacts?": "artifact",
    "behaviours?": "behavior",
    "cancell(ed|ing)": "canceled",
    "catalogues?": "catalog",
    r"(un)?categoris\w*": "categorize",
    "centred?|centres": "center",
    "colours?|coloured|colouring": "color",
    r"favour\w*|honour\w*": "favor, honor",
    "grey": "gray",
    r"(initial|normal|serial|organ|util|summar|optim|minim|maxim|recogn|synchron|general)is(e|es|ed|er|ing|ation)\w*":
        "-ize, -ization",
    "judgements?": "judgment",
    "labell(ed|ing)|modell(ed|ing)|travell(ed|ing)": "labeled, modeled, traveled",
    "learnt|spelt|whilst|amongst": "learned, spelled, while, among",
    "licence": "license",
    "neighbours?|neighbouring": "neighbor",
}  # fmt: skip
# Rejected in contracts only: elsewhere a library, punctuation of JSON, a part of a text, a deleted file.
CONTRACT_WORDS: Final[Mapping[str, str]] = {
    "arrow": "flow",
    "brackets?": "begin/end pair",
    "pieces?": "segment",
    "unlinked": "launch unknown",
}


def check_words(root: Path) -> Iterator[Violation]:
    """A violation for each rejected word in the checked files, in the order of the files."""
    for path in [path for pattern in CHECKED for path in sorted(root.glob(pattern))]:
        name = path.relative_to(root).as_posix()
        if name.startswith(NOT_CHECKED):
            continue
        pattern, instead = _IN_CONTRACTS if name.startswith("sql/") else _EVERYWHERE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for word, better in _matches(pattern, instead, line):
                yield Violation(f"{name}:{number}", f"the word `{word}`", f"write: {better}")


def words(text: str) -> Iterator[tuple[str, str]]:
    """The rejected words in the text of a contract, each with what to write instead."""
    return _matches(*_IN_CONTRACTS, text)


def _matches(pattern: re.Pattern[str], instead: tuple[str, ...], text: str) -> Iterator[tuple[str, str]]:
    for match in pattern.finditer(text):
        assert match.lastgroup is not None
        yield match[0], instead[int(match.lastgroup.removeprefix("w"))]


def _compiled(words: Mapping[str, str]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """One pattern with a group per word, and what to write instead of each.

    The groups are sorted by first letter, so that most are skipped at once: ten times as fast.
    """
    by_letter: dict[str, list[str]] = {}
    for index, word in enumerate(words):
        letters = {each[0] for each in word.split("|")} if "(" not in word else {""}
        letter = letters.pop() if len(letters) == 1 else ""
        by_letter.setdefault(letter, []).append(f"(?P<w{index}>{word})")
    groups = "|".join(f"(?={letter})(?:{'|'.join(each)})" for letter, each in by_letter.items())
    return re.compile(f"(?<![A-Za-z])(?:{groups})(?![A-Za-z])", re.IGNORECASE), tuple(words.values())


_EVERYWHERE = _compiled(WORDS)
_IN_CONTRACTS = _compiled({**WORDS, **CONTRACT_WORDS})
