"""Strict JSON of any depth: what the usual parsers refuse because it is nested too deep for their stack.

Slow, and only asked where they refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    rb"[ \t\r\n]*("
    rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
    rb"|[{}\[\],:]"
    rb"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
    rb"|true|false|null)"
)
_BLANKS = b" \t\r\n"
_PAIRS = {b"}": b"{", b"]": b"["}
# What may come next.
_VALUE, _VALUE_OR_END, _KEY, _KEY_OR_END, _COLON, _COMMA_OR_END = range(6)


class _NotStrict(ValueError):
    """The text is not one strict JSON value."""


def minify(data: bytes) -> bytes | None:
    """The value without blanks between its tokens, each token verbatim; None if it is not strict JSON."""
    try:
        return b"".join(token for token, _ in _tokens(data))
    except _NotStrict:
        return None


def elements(array: bytes) -> list[bytes] | None:
    """The minified elements of a JSON array; None if it is not strict JSON."""
    found: list[bytes] = []
    parts: list[bytes] = []
    try:
        for token, depth in _tokens(array):
            if depth == 0 and token not in (b"[", b"]"):
                return None
            if depth == 0 or (depth == 1 and token == b","):
                if parts:
                    found.append(b"".join(parts))
                parts = []
            else:
                parts.append(token)
    except _NotStrict:
        return None
    return found


def members(text: bytes) -> list[tuple[bytes, bytes]] | None:
    """Key tokens and minified values of a JSON object in file order; None if it is not strict JSON."""
    found: list[tuple[bytes, bytes]] = []
    key, parts = b"", []
    try:
        for token, depth in _tokens(text):
            if depth == 0 and token not in (b"{", b"}"):
                return None
            if depth == 0 or (depth == 1 and token == b","):
                if parts:
                    found.append((key, b"".join(parts)))
                key, parts = b"", []
            elif not key:
                key = token
            elif parts or token != b":":
                parts.append(token)
    except _NotStrict:
        return None
    return found


def _tokens(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Each token with the number of containers around it. Raises _NotStrict."""
    open_: list[bytes] = []
    wanted, at = _VALUE, 0
    while wanted != _COMMA_OR_END or open_:
        match = _TOKEN.match(data, at)
        if match is None:
            raise _NotStrict
        token, at = match.group(1), match.end()
        if token in _PAIRS:
            if wanted not in _ENDS or not open_ or open_.pop() != _PAIRS[token]:
                raise _NotStrict
        elif wanted not in _STARTS.get(token[:1], _SCALAR):
            raise _NotStrict
        yield token, len(open_)
        if token in (b"{", b"["):
            open_.append(token)
        wanted = _next(token, wanted, open_)
    if data[at:].strip(_BLANKS):
        raise _NotStrict


_SCALAR = frozenset((_VALUE, _VALUE_OR_END))
_ENDS = frozenset((_VALUE_OR_END, _KEY_OR_END, _COMMA_OR_END))
_STARTS = {
    b'"': frozenset((_VALUE, _VALUE_OR_END, _KEY, _KEY_OR_END)),
    b",": frozenset((_COMMA_OR_END,)),
    b":": frozenset((_COLON,)),
}


def _next(token: bytes, was: int, open_: list[bytes]) -> int:
    if token == b"{":
        return _KEY_OR_END
    if token == b"[":
        return _VALUE_OR_END
    if token == b",":
        return _KEY if open_ and open_[-1] == b"{" else _VALUE
    if token == b":":
        return _VALUE
    return _COLON if was in (_KEY, _KEY_OR_END) and token not in _PAIRS else _COMMA_OR_END
