"""JSON as text: values verbatim and the place of each token, which parsers throw away.

Strict JSON of any depth is read; what is said to be valid is not checked again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from tracewarehouse.formats import deep_json

Text = msgspec.Raw | bytes
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class StringToken:
    """A string in JSON text: `text[start:end]` with its quotes; `keys` lead to it from the top."""

    start: int
    end: int
    keys: tuple[str | int, ...]
    is_key: bool


def unquote(token: str) -> str:
    """The string that a JSON string token stands for."""
    return token[1:-1] if "\\" not in token else str(msgspec.json.decode(token))


def quote(value: str) -> str:
    """The JSON string token of a string."""
    return msgspec.json.encode(value).decode()


def path_text(keys: tuple[str | int, ...]) -> str:
    """The JSON path of a place: `$.args."Process Group Name"[0]`."""
    return "$" + "".join(map(_step, keys))


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f".{quote(key)}"


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8; msgspec does not look inside the strings that it skips."""
    try:
        return data.isascii() or data.decode() is not None
    except UnicodeDecodeError:
        return False


def minify(data: bytes) -> bytes | None:
    """The JSON without the blanks between its tokens, each token verbatim; None if not strict JSON."""
    try:
        out = msgspec.json.format(data, indent=-1)
    except RecursionError:
        out = deep_json.minify(data)
    except _BROKEN:
        return None
    return out if out is not None and is_utf8(out) else None


def elements(array: bytes) -> Sequence[Text] | None:
    """The texts of the elements of a JSON array; None if it is not strict JSON."""
    try:
        return msgspec.json.decode(array, type=list[msgspec.Raw])
    except RecursionError:
        return deep_json.elements(array)
    except _BROKEN:
        return None


def members(text: str) -> list[tuple[str, str]]:
    """The members of a minified JSON object in file order, values verbatim, a repeated key repeatedly."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except RecursionError:
        return _members(text)
    pairs = [(key, bytes(value).decode()) for key, value in found.items()]
    # Where the parts do not fill the text, a key is repeated or has escapes.
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
    """Every string token of a JSON text, keys too, with the keys and positions that lead to it."""
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
