"""SQL tokens, for hashes and style checks of contracts. Pure Python."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from tracewarehouse.late_regex import late_regex

TokenKind = Literal["comment", "string", "quoted", "param", "number", "word", "mark"]

_KINDS = {
    "space": r"\s+",
    "comment": r"--[^\n]*|/\*.*?\*/",
    "string": r"[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'",
    "quoted": r'"(?:[^"]|"")*"',
    "param": r"\$[A-Za-z_]\w*",
    "number": r"(?:\d[\d_]*)(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?",
    "word": r"[^\W\d]\w*",
    "mark": r"::|:=|<=|>=|<>|!=|==|\|\||->>|->|=>|\*\*|//|<<|>>|.",
}
_BETWEEN = ("space", "comment")
_TOKEN = late_regex("|".join(f"(?P<{kind}>{text})" for kind, text in _KINDS.items()), re.DOTALL)
# Matches a token with the spaces and comments before it, for a search without an object per token.
_TEXT = late_regex(
    f"(?:{'|'.join(_KINDS[kind] for kind in _BETWEEN)})*+"
    f"({'|'.join(text for kind, text in _KINDS.items() if kind not in _BETWEEN)}|\\Z)",
    re.DOTALL,
)
# Matches parameters, and what may contain text that looks like one.
_PARAM = late_regex(
    f"(?<!\\w){_KINDS['string']}|{_KINDS['quoted']}|{_KINDS['comment']}|\\$(?P<name>[A-Za-z_]\\w*)", re.DOTALL
)

_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
# Text that reads unnamed columns: a star after these, FROM without SELECT, these words.
_STARS = frozenset(("SELECT", "DISTINCT", ",", "."))
_FIRST = frozenset(("(", "SELECT"))
UNNAMED_COLUMNS = frozenset(
    ("NATURAL", "COLUMNS", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE", "SHOW")
)


class Token(NamedTuple):
    """A token, its line in the file, and its depth in brackets."""

    kind: TokenKind
    text: str
    line: int
    depth: int


@lru_cache(maxsize=256)
def token_texts(sql: str) -> tuple[str, ...]:
    """The texts of the tokens without comments and spacing; equal texts mean equal SQL."""
    return tuple(text for text in _TEXT.findall(sql) if text)


@lru_cache(maxsize=256)
def names_read(sql: str) -> frozenset[str] | None:
    """All names that may refer to a column, in lower case; None if the SQL may read unnamed columns."""
    texts = token_texts(sql)
    distinct = {*texts}
    if not UNNAMED_COLUMNS.isdisjoint(map(str.upper, distinct)):
        return None
    readers = {text: _FIRST for text in distinct if text.upper() == "FROM"} | {"*": _STARS}
    for text, earlier in zip(texts, ("SELECT", *texts), strict=False):
        if text in readers and earlier.upper() in readers[text]:
            return None
    return frozenset(text.strip('"').lower() for text in distinct)


def names_in(texts: Iterable[str]) -> frozenset[str] | None:
    """All names of `names_read` in several texts; None if one of them may read unnamed columns."""
    found = [names_read(sql) for sql in texts]
    known = [names for names in found if names is not None]
    return frozenset[str]().union(*known) if len(known) == len(found) else None


def tokens(sql: str, first_line: int = 1) -> list[Token]:
    """The tokens without comments; a bracket has the depth outside it."""
    listed = []
    line, depth = first_line, 0
    for match in _TOKEN.finditer(sql):
        kind, text = match.lastgroup, match.group()
        if text in (")", "]", "}"):
            depth -= 1
        if kind not in ("space", "comment"):
            listed.append(Token(kind, text, line, depth))  # type: ignore[arg-type]
        if text in ("(", "[", "{"):
            depth += 1
        line += text.count("\n")
    return listed


def replace_params(sql: str, literals: dict[str, str]) -> str:
    """The SQL with each `$name` replaced, except in strings and comments."""

    return _PARAM.sub(lambda match: literals[match["name"]] if match["name"] else match.group(), sql)


def values_list(sql: str) -> list[dict[str, str | int | bool | None]]:
    """The rows of `FROM (VALUES …) AS name (columns)`: texts, whole numbers, TRUE, FALSE, NULL.

    What the SELECT makes of them is not evaluated.
    """
    texts = token_texts(sql)
    groups: list[list[str]] = [[]]
    for text in texts[texts.index("VALUES") + 1 :]:
        if text in ("(", ")"):
            groups.append([])
        elif text != ",":
            groups[-1].append(text)
    *rows, _, columns = filter(None, groups)
    return [dict(zip(columns, map(_literal, row), strict=True)) for row in rows]


def _literal(text: str) -> str | int | bool | None:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return text[1:-1].replace("''", "'") if text.startswith("'") else int(text)


def quote_name(name: str) -> str:
    """The name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """The text as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements before each semicolon, and the text after the last one.

    Semicolons in strings, comments and quoted names, or after an unclosed one, do not count.
    """
    done: list[str] = []
    start = 0
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "mark" and (match.group() in "'\"" or text.startswith("/*", match.start())):
            break
        if match.group() == ";":
            done.append(text[start : match.start()].strip())
            start = match.end()
    return [statement for statement in done if statement], text[start:]
