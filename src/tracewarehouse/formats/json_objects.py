"""JSON objects from columns, such as the arguments of activities.

Most members have few distinct values. The text between the values that differ in most rows is therefore built
once for each combination of the other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes: TypeAlias = NDArray[np.int64]

TEXT: Final = pa.large_string()
_NONE: Final = pa.scalar(None, TEXT)
# A member is combined with others if a sample has fewer distinct values than this share.
_SAMPLE_ROWS: Final = 512
_FEW: Final = 8
_MOST_CODES: Final = 1 << 62


@dataclass(frozen=True)
class _Member:
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
    found = [_member(key, values) for key, values in members.items() if _has_values(values)]
    if not found or not rows:
        return pa.nulls(rows, TEXT)
    code, first = combinations([(each.codes, each.count) for each in found], rows)
    texts = [_segments(found, row) for row in first.tolist()]
    segments = [_spread([text[at] for text in texts], code) for at in range(len(texts[0]))]
    parts = [segments[0]]
    wide = [each.values for each in found if each.values is not None]
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


def json_lists(*columns: pa.Array) -> pa.DictionaryArray:
    """Integer columns as JSON lists of a number each; null if one of them is null."""
    encoded = [column.dictionary_encode() for column in columns]
    found = [_codes(each) for each in encoded]
    code, first = combinations(
        [(codes, len(each.dictionary) + 1) for codes, each in zip(found, encoded, strict=True)],
        len(columns[0]),
    )
    words = [["null", *map(str, each.dictionary.to_pylist())] for each in encoded]
    lists = [
        None
        if any(codes[row] == 0 for codes in found)
        else f"[{','.join(word[codes[row]] for word, codes in zip(words, found, strict=True))}]"
        for row in first.tolist()
    ]
    known = pa.array(lists, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(known.indices.take(code), known.dictionary)


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
    elif is_encoded and len(values.dictionary) > _FEW and len(values.dictionary) * _FEW > len(values):
        values = pc.cast(values, TEXT)
    elif is_encoded or _repeats(values):
        encoded = values if is_encoded else values.dictionary_encode()
        codes, words = _codes(encoded), pc.cast(encoded.dictionary, TEXT).to_pylist()
        return _Member(name, None if len(words) == 1 and codes.all() else codes, words)
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
