"""JSON at the text level, with verbatim values and any nesting depth, and JSON objects from columns.

A parser written without recursion handles JSON that is nested too deeply for msgspec. Strings that are too
long to store are replaced by a marker with their length and hash while the text streams by.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.formats.file_text import json_tokens
from tracewarehouse.late_regex import late_regex

Text = msgspec.Raw | bytes
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError)
_TOKEN = late_regex(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_PLAIN_KEY = late_regex(r"[A-Za-z_][A-Za-z0-9_]*")


class StringToken(Struct, frozen=True):
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
        try:
            out = msgspec.json.format(data, indent=-1)
        except RecursionError:
            out = b"".join(token for token, _ in _deep_tokens(data))
    except _BROKEN:
        return None
    return out if is_utf8(out) else None


def elements(array: bytes) -> Sequence[Text] | None:
    """The texts of the elements of a JSON array; None if it is not strict JSON. Deep ones are minified."""
    try:
        return msgspec.json.decode(array, type=list[msgspec.Raw])
    except RecursionError:
        found = _parts(array, b"[]")
        return None if found is None else [b"".join(each) for each in found]
    except _BROKEN:
        return None


def members(text: str) -> list[tuple[str, str]]:
    """The members of a minified JSON object in file order, values verbatim; repeated keys are kept."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except RecursionError:
        found = {}
    pairs = [(key, bytes(value).decode()) for key, value in found.items()]
    # If the lengths do not add up, a key is repeated or contains escapes.
    if sum(len(key) + len(value) for key, value in pairs) + 4 * len(pairs) + 1 == len(text):
        return pairs
    return [(key, value.decode()) for key, value in deep_members(text.encode()) or ()]


def strings(text: str) -> Iterator[StringToken]:
    """Every string token of a JSON text, including keys, with its path."""
    path: list[str | int] = []  # in an object the last one is a key, in a list a number
    expects_key = False
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "{" or token == "[":
            path.append("" if token == "{" else 0)
            expects_key = token == "{"
        elif token == "}" or token == "]":
            path.pop()
            expects_key = False
        elif token == ",":
            last = path[-1]
            expects_key = isinstance(last, str)
            if isinstance(last, int):
                path[-1] = last + 1
        elif token[0] == '"':
            if expects_key:
                path[-1] = unquote(token)
            yield StringToken(match.start(), match.end(), tuple(path), expects_key)
            expects_key = False


# Half of a character is strict JSON, which msgspec does not read.
_SURROGATE = late_regex(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
# The number of levels that are checked at a time.
_LEVELS: Final = 100


def deep_members(text: bytes) -> list[tuple[str, bytes]] | None:
    """Keys and minified values of a JSON object of any depth; None if it is not strict JSON."""
    found = _parts(text, b"{}")
    return None if found is None else [(unquote(key.decode()), b"".join(value)) for key, _, *value in found]


def _parts(text: bytes, brackets: bytes) -> list[list[bytes]] | None:
    """The tokens of each element or member of JSON between these brackets; None if it is not strict."""
    found: list[list[bytes]] = []
    tokens: list[bytes] = []
    try:
        for token, depth in _deep_tokens(text):
            if depth == 0 and token not in brackets:
                return None
            if depth and (depth > 1 or token != b","):
                tokens.append(token)
            elif tokens:
                found.append(tokens)
                tokens = []
    except _BROKEN:
        return None
    return found


def _deep_tokens(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Each token with its nesting depth. Raises msgspec's error at the end of what is not strict JSON.

    Containers at some depths are checked without what they hold at the next of these, which comes first.
    """
    unchecked: list[list[bytes]] = [[]]
    for token, depth in json_tokens(data):
        yield token, depth
        is_apart = depth % _LEVELS == _LEVELS - 1
        if is_apart and token in (b"{", b"["):
            unchecked.append([])
        unchecked[-1].append(token)
        if is_apart and token in (b"}", b"]") and len(unchecked) > 1:
            _check(unchecked.pop())
            unchecked[-1].append(b"0")
    _check(unchecked[0])


def _check(tokens: Iterable[bytes]) -> None:
    """Raises msgspec's error if these are not the tokens of a strict JSON value."""
    msgspec.json.format(_SURROGATE.sub(b"n", b" ".join(tokens)), indent=-1)


LONGEST_BYTES: Final = 64 << 20
_WHOLE_STRINGS: Final = late_regex(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_BODY: Final = late_regex(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


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
            if self.inside:
                end = self._end(piece, at)
                self._take(piece[at:end])
                if end < len(piece):
                    out.append(self._close())
            else:
                whole = _WHOLE_STRINGS.match(piece, at)
                end = whole.end() if whole else at
                out.append(piece[at:end])
                self._begin()
            self.inside ^= end < len(piece)  # at a quote
            at = end + 1
        return b"".join(out)

    def _begin(self) -> None:
        self._held: list[bytes] = []
        self._sha = hashlib.sha256(self._salt)
        self._size = 0
        # Whether the previous piece ended with a backslash that escapes the next character.
        self._escaped = False

    def _end(self, piece: bytes, at: int) -> int:
        """The position of the closing quote; the end if it is not in this piece."""
        body = _BODY.match(piece, at + self._escaped)
        stop = body.end() if body else at
        self._escaped = piece[stop : stop + 1] == b"\\"
        return stop if piece[stop : stop + 1] == b'"' else len(piece)

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


TEXT: Final = pa.large_string()
_NO_TEXT: Final = pa.scalar("", TEXT)


def json_objects(members: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """One JSON object per row with the members that are not null; null for an empty object.

    Numbers are formatted as JSON numbers. Texts must be JSON already (see `json_texts`); they may be
    dictionary-encoded.
    """
    parts = []
    for key, values in members.items():
        if pa.types.is_floating(values.type):  # JSON has no other numbers than finite ones
            values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
        name, texts = pa.scalar(f",{quote(key)}:", TEXT), pc.cast(values, TEXT)
        is_everywhere = not texts.null_count
        parts += [name, texts] if is_everywhere else [pc.binary_join_element_wise(name, texts, _NO_TEXT)]
    if not parts:
        return pa.nulls(rows, TEXT)
    joined = pc.binary_join_element_wise(
        *parts, pa.scalar("}", TEXT), _NO_TEXT, null_handling="replace", null_replacement=""
    )
    objects = pc.binary_replace_slice(joined, 0, 1, "{")  # in place of the first comma
    return pc.if_else(pc.equal(objects, "{"), pa.scalar(None, TEXT), objects)


def json_texts(texts: pa.Array) -> pa.DictionaryArray:
    """Texts as JSON strings; null stays null."""
    encoded = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    quoted = [msgspec.json.encode(text).decode() for text in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(quoted, pa.string()))


def json_lists(lists: pa.Array) -> pa.DictionaryArray:
    """Lists of integers as JSON; null where one of the integers is null."""
    texts = pc.binary_join(lists.cast(pa.list_(pa.string())), ",")
    return pc.binary_join_element_wise("[", texts, "]", "").dictionary_encode()
