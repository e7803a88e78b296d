"""JSON at the text level, with verbatim values and any nesting depth, and JSON objects from columns.

A parser written without recursion handles JSON that is nested too deeply for msgspec. Strings that are too
long to store are replaced by a marker with their length and hash while the text streams by.

Most members have few distinct values. The text between the values that differ in most rows is therefore built
once for each combination of the other values.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes: TypeAlias = NDArray[np.int64]


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
        found = {}
    pairs = [(key, bytes(value).decode()) for key, value in found.items()]
    # If the lengths do not add up, a key is repeated or contains escapes.
    if sum(len(key) + len(value) for key, value in pairs) + 4 * len(pairs) + 1 == len(text):
        return pairs
    return [(key, value.decode()) for key, value in deep_members(text.encode()) or ()]


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


# An unclosed string is also one token; otherwise matching would restart at each quote inside it.
_DEEP_TOKEN = late_regex(rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)|[{}\[\],:]|[^ \t\r\n{}\[\],:"]+', re.DOTALL)
# Half of a character is strict JSON, which msgspec does not read.
_SURROGATE = late_regex(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
# The number of levels that are checked at a time.
_LEVELS: Final = 100


def _deep_minify(data: bytes) -> bytes | None:
    """`minify` without recursion."""
    try:
        return b"".join(token for token, _ in _deep_tokens(data))
    except _BROKEN:
        return None


def _deep_elements(array: bytes) -> list[bytes] | None:
    """`elements`, minified and without recursion."""
    found = _parts(array, b"[]")
    return None if found is None else [b"".join(tokens) for tokens in found]


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
    depth = 0
    for match in _DEEP_TOKEN.finditer(data):
        token = match.group()
        begins, ends = token in (b"{", b"["), token in (b"}", b"]")
        depth -= ends
        yield token, depth
        is_apart = depth % _LEVELS == _LEVELS - 1
        if is_apart and begins:
            unchecked.append([])
        unchecked[-1].append(token)
        if is_apart and ends and len(unchecked) > 1:
            _check(unchecked.pop())
            unchecked[-1].append(b"0")
        depth += begins
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


TEXT: Final = pa.large_string()
_NONE: Final = pa.scalar(None, TEXT)
# A member is combined with others if a sample has fewer distinct values than this share.
_SAMPLE_ROWS: Final = 512
_FEW: Final = 8
_MOST_CODES: Final = 1 << 62


class _Member(Struct, frozen=True):
    """A member: its key as JSON, and the code of each row; 0 for no value.

    The words are the values of codes from 1 on; without words the values differ in most rows.
    """

    key: str
    codes: Codes | None
    words: Sequence[str]
    values: pa.Array | None = None

    @property
    def count(self) -> int:
        """Number of codes."""
        return 2 if self.values is not None else len(self.words) + 1


def json_objects(members: Mapping[str, pa.Array | pa.Scalar], rows: int) -> pa.Array:
    """One JSON object per row with the members that are not null; null for an empty object.

    Numbers are formatted as JSON numbers. Texts must be JSON already (see `json_texts`); they may be
    dictionary-encoded.
    """
    columns = [_member(key, values) for key, values in members.items() if _has_values(values)]
    if not columns or not rows:
        return pa.nulls(rows, TEXT)
    code, first = combinations([(each.codes, each.count) for each in columns], rows)
    texts = [_segments(columns, row) for row in first.tolist()]
    segments = [_spread([text[at] for text in texts], code) for at in range(len(texts[0]))]
    parts = [segments[0]]
    wide = [each.values for each in columns if each.values is not None]
    for values, segment in zip(wide, segments[1:], strict=True):
        parts += [pc.cast(values, TEXT), segment]
    joined = parts[0]
    if len(parts) > 1:
        joined = pc.binary_join_element_wise(
            *parts, pa.scalar("", TEXT), null_handling="replace", null_replacement=""
        )
    joined = pa.repeat(joined, rows) if isinstance(joined, pa.Scalar) else joined
    is_empty = ["".join(text) == "{}" for text in texts]
    if not any(is_empty):
        return joined
    return pc.if_else(pa.array(is_empty).take(code), _NONE, joined)


def json_texts(texts: pa.Array) -> pa.DictionaryArray:
    """Texts as JSON strings; null stays null."""
    encoded = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    quoted = [msgspec.json.encode(text).decode() for text in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(quoted, pa.string()))


def json_lists(lists: pa.Array) -> pa.DictionaryArray:
    """Lists of integers as JSON; null where one of the integers is null."""
    texts = pc.binary_join(lists.cast(pa.list_(pa.string())), ",")
    return pc.binary_join_element_wise("[", texts, "]", "").dictionary_encode()


def combinations(columns: Iterable[tuple[Codes | None, int]], rows: int) -> tuple[pa.Array, Codes]:
    """The number of each row's combination of codes, and the first row of each combination.

    A column is the code of each row, None if all are equal, and the number of codes.
    """
    number, count = np.zeros(rows, np.int64), 1
    for codes, codes_count in columns:
        if codes is None:
            continue
        if count > _MOST_CODES // codes_count:
            encoded = pa.array(number).dictionary_encode()
            number, count = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
        number *= codes_count
        number += codes
        count *= codes_count
    found = pa.array(number).dictionary_encode()
    first = np.zeros(len(found.dictionary), np.int64)
    order = np.arange(rows - 1, -1, -1)
    first[found.indices.to_numpy()[order]] = order  # of several the last one stays
    return found.indices, first


def _has_values(values: pa.Array | pa.Scalar) -> bool:
    return bool(values.is_valid if isinstance(values, pa.Scalar) else values.null_count < len(values))


def _member(key: str, values: pa.Array | pa.Scalar) -> _Member:
    name = msgspec.json.encode(key).decode()
    if isinstance(values, pa.Scalar):
        return _Member(name, None, [pc.cast(values, TEXT).as_py()])
    is_encoded = isinstance(values, pa.DictionaryArray)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
    elif is_encoded or _repeats(values):
        encoded = values if is_encoded else values.dictionary_encode()
        if len(encoded.dictionary) <= max(_FEW, len(values) // _FEW):
            codes, words = _codes(encoded), pc.cast(encoded.dictionary, TEXT).to_pylist()
            return _Member(name, None if len(words) == 1 and codes.all() else codes, words)
        values = pc.cast(values, TEXT) if is_encoded else values
    valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
    return _Member(name, None if valid is None else valid.astype(np.int64), (), values)


def _repeats(values: pa.Array) -> bool:
    sample = values.slice(len(values) // 2, _SAMPLE_ROWS)
    return len(sample) < _SAMPLE_ROWS or len(sample.unique()) * _FEW < len(sample)


def _codes(encoded: pa.DictionaryArray) -> Codes:
    """The codes from 1 on, 0 for null."""
    codes: Codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    codes += 1
    return codes


def _segments(members: Sequence[_Member], row: int) -> list[str]:
    """The texts before, between and after the values of a row that are not in words."""
    found, text, opening = [], "", "{"
    for each in members:
        code = 1 if each.codes is None else each.codes[row]
        if code:
            text += f"{opening}{each.key}:"
            opening = ","
        if each.values is not None:
            found.append(text)
            text = ""
        elif code:
            text += each.words[code - 1]
    return [*found, text + ("}" if opening == "," else "{}")]


def _spread(texts: Sequence[str], code: pa.Array) -> pa.Array | pa.Scalar:
    """The text of each row; a scalar if all are equal."""
    if len(set(texts)) == 1:
        return pa.scalar(texts[0], TEXT)
    return pa.array(texts, TEXT).take(code)
