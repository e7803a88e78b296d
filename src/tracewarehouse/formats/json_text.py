"""JSON at the text level: verbatim values, token positions, any nesting depth, and strings of any length.

A parser written without recursion handles JSON that is nested too deeply for msgspec. Strings that are too
long to store are replaced by a marker with their length and hash while the text streams by.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

Text = msgspec.Raw | bytes
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class StringToken:
    """A string in JSON text: `text[start:end]` with its quotes; `keys` is its path from the root."""

    start: int
    end: int
    keys: tuple[str | int, ...]
    is_key: bool


def unquote(token: str) -> str:
    """The value of a JSON string token."""
    return token[1:-1] if "\\" not in token else str(msgspec.json.decode(token))


def quote(value: str) -> str:
    """The string as a JSON string token."""
    return msgspec.json.encode(value).decode()


def path_text(keys: tuple[str | int, ...]) -> str:
    """The keys as a JSON path: `$.args."Process Group Name"[0]`."""
    return "$" + "".join(map(_step, keys))


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f".{quote(key)}"


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are valid UTF-8; msgspec does not check strings that it skips."""
    try:
        return data.isascii() or data.decode() is not None
    except UnicodeDecodeError:
        return False


def minify(data: bytes) -> bytes | None:
    """The JSON without whitespace between tokens, each token verbatim; None if it is not strict JSON."""
    try:
        out: bytes | None = msgspec.json.format(data, indent=-1)
    except RecursionError:
        out = _deep_minify(data)
    except _BROKEN:
        return None
    return out if out is not None and is_utf8(out) else None


def elements(array: bytes) -> Sequence[Text] | None:
    """The texts of the elements of a JSON array; None if it is not strict JSON."""
    try:
        return msgspec.json.decode(array, type=list[msgspec.Raw])
    except RecursionError:
        return _deep_elements(array)
    except _BROKEN:
        return None


def members(text: str) -> list[tuple[str, str]]:
    """The members of a minified JSON object in file order, values verbatim; repeated keys are kept."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except RecursionError:
        return _members(text)
    pairs = [(key, bytes(value).decode()) for key, value in found.items()]
    # If the lengths do not add up, a key is repeated or contains escapes.
    if sum(len(key) + len(value) for key, value in pairs) + 4 * len(pairs) + 1 == len(text):
        return pairs
    return _members(text)


def _members(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    depth, key, start = 0, None, -1
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "}]":
            depth -= 1
        if depth == 1 and key is None and token[0] == '"':
            key = unquote(token)
        elif depth == 1 and start < 0 and key is not None and token == ":":
            start = match.end()
        elif key is not None and ((depth == 1 and token == ",") or depth == 0):
            found.append((key, text[start : match.start()].strip()))
            key, start = None, -1
        if token in "{[":
            depth += 1
    return found


def strings(text: str) -> Iterator[StringToken]:
    """Every string token of a JSON text, including keys, with its path."""
    path: list[str | int] = []
    in_object: list[bool] = []
    expects_key = False
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "{" or token == "[":
            in_object.append(token == "{")
            path.append("" if token == "{" else 0)
            expects_key = token == "{"
        elif token == "}" or token == "]":
            in_object.pop()
            path.pop()
            expects_key = False
        elif token == ",":
            expects_key = in_object[-1]
            if not expects_key:
                path[-1] = int(path[-1]) + 1
        elif token[0] == '"':
            if expects_key:
                path[-1] = unquote(token)
            yield StringToken(match.start(), match.end(), tuple(path), expects_key)
            expects_key = False


_STRICT_TOKEN = re.compile(
    rb"[ \t\r\n]*("
    rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
    rb"|[{}\[\],:]"
    rb"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
    rb"|true|false|null)"
)
_BLANKS = b" \t\r\n"
_PAIRS = {b"}": b"{", b"]": b"["}
# Which tokens may follow.
_VALUE, _VALUE_OR_END, _KEY, _KEY_OR_END, _COLON, _COMMA_OR_END = range(6)


class _NotStrict(ValueError):
    """The text is not a single strict JSON value."""


def _deep_minify(data: bytes) -> bytes | None:
    """`minify` without recursion."""
    try:
        return b"".join(token for token, _ in _tokens(data))
    except _NotStrict:
        return None


def _deep_elements(array: bytes) -> list[bytes] | None:
    """`elements`, minified and without recursion."""
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


def deep_members(text: bytes) -> list[tuple[bytes, bytes]] | None:
    """Key tokens and minified values of a JSON object of any depth; None if it is not strict JSON."""
    found: list[tuple[bytes, bytes]] = []
    key = b""
    parts: list[bytes] = []
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
    """Each token with its nesting depth. Raises _NotStrict."""
    open_: list[bytes] = []
    wanted, at = _VALUE, 0
    while wanted != _COMMA_OR_END or open_:
        match = _STRICT_TOKEN.match(data, at)
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


LONGEST_BYTES: Final = 64 << 20
_WHOLE_STRINGS: Final = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_BODY: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class LongStrings:
    """Replaces strings longer than `longest` bytes by a marker in JSON text that is fed in chunks.

    The text must begin outside a string. `replaced` are the lengths of the replaced strings, in bytes of the
    file.
    """

    def __init__(self, salt: bytes, longest: int = LONGEST_BYTES) -> None:
        self.replaced: list[int] = []
        self.inside = False
        self._salt = salt
        self._longest = longest
        self._begin()

    def feed(self, piece: bytes) -> bytes:
        """The text up to an unclosed string, which is buffered until it is closed."""
        return b"".join(
            self._feed(piece[at : at + self._longest]) for at in range(0, len(piece), self._longest)
        )

    def _feed(self, piece: bytes) -> bytes:
        """`feed` for a piece that is too short to contain a complete long string."""
        out: list[bytes] = []
        at = 0
        while at < len(piece):
            if not self.inside:
                whole = _WHOLE_STRINGS.match(piece, at)
                stop = whole.end() if whole else at
                out.append(piece[at:stop])
                if stop == len(piece):
                    break
                self._begin()
                self.inside, at = True, stop + 1
                continue
            end = self._end(piece, at)
            self._take(piece[at : end if end >= 0 else len(piece)])
            if end < 0:
                break
            out.append(self._close())
            self.inside, at = False, end + 1
        return b"".join(out)

    def _begin(self) -> None:
        self._held: list[bytes] = []
        self._sha = hashlib.sha256(self._salt)
        self._size = 0
        # Whether the previous piece ended with a backslash that escapes the next character.
        self._escaped = False

    def _end(self, piece: bytes, at: int) -> int:
        """The position of the closing quote, -1 if it is not in this piece."""
        body = _BODY.match(piece, at + self._escaped)
        stop = body.end() if body else at
        self._escaped = piece[stop : stop + 1] == b"\\"
        return stop if piece[stop : stop + 1] == b'"' else -1

    def _take(self, content: bytes) -> None:
        self._size += len(content)
        self._sha.update(content)
        if self._size <= self._longest:
            self._held.append(content)
        else:
            self._held.clear()

    def _close(self) -> bytes:
        """The string with its quotes, or its marker if it is too long."""
        if self._size <= self._longest:
            return b'"' + b"".join(self._held) + b'"'
        self.replaced.append(self._size)
        return f'"[replaced: {self._size} bytes, sha256 {self._sha.hexdigest()[:16]}]"'.encode()
