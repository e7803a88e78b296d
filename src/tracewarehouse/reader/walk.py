"""A walk over the tokens of valid JSON that keeps the place of each: what parsers throw away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

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


def members(text: str) -> list[tuple[str, str]]:
    """The members of a JSON object in file order, values verbatim, a key that comes twice twice."""
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
