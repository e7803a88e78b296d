"""Conversion between elements of a memory timeline and rows, lossless in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

TABLE: Final = "memory_timeline"
# Indexed by torch's numbers: actions start at 1, categories at 0.
ACTIONS: Final = (None, "preexisting", "create", "increment_version", "destroy")
CATEGORIES: Final = (
    "parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail",
    "unknown",
)  # fmt: skip
SCHEMA: Final = pa.schema(
    [
        ("event_id", pa.int64()),
        ("ts_ns", pa.int64()),
        ("action", pa.string()),
        ("bytes", pa.int64()),
        ("category", pa.string()),
        ("file_time_ns", pa.int64()),
        ("file_action", pa.int64()),
        ("file_category", pa.int64()),
        ("element", pa.string()),
    ]
)
_CHANGE: Final = msgspec.json.Decoder(list[tuple[int, int, int, int]])
_ONE: Final = msgspec.json.Decoder(tuple[int, int, int, int])
_LIMIT: Final = 2**63


def rows(texts: Sequence[bytes], first: int) -> pa.RecordBatch:
    """One row per minified element; `first` is the position of the first element."""
    changes = _changes(texts)
    irregular = [at for at, change in enumerate(changes) if change is None]
    numbers = np.array([change or (0, 0, 0, 0) for change in changes], np.int64).reshape(-1, 4)
    is_change = np.ones(len(texts), np.bool_)
    is_change[irregular] = False
    time, action, size, category = numbers.T
    known_time = is_change & (time >= 0)
    actions, known_action = _named(action, ACTIONS, is_change)
    categories, known_category = _named(category, CATEGORIES, is_change)
    elements = [
        None if change is not None else bytes(text).decode()
        for change, text in zip(changes, texts, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(first, first + len(texts))),
            pa.array(time, mask=~known_time),
            actions,
            pa.array(size, mask=~is_change),
            categories,
            pa.array(time, mask=~is_change | known_time),
            pa.array(action, mask=~is_change | known_action),
            pa.array(category, mask=~is_change | known_category),
            pa.array(elements, pa.string()),
        ],
        schema=SCHEMA,
    )


def element(row: dict[str, object]) -> str:
    """The minified element of a row."""
    if row["element"] is not None:
        return str(row["element"])
    action, category = row["action"], row["category"]
    time = row["ts_ns"] if row["ts_ns"] is not None else row["file_time_ns"]
    action_number = row["file_action"] if action is None else ACTIONS.index(str(action))
    category_number = row["file_category"] if category is None else CATEGORIES.index(str(category))
    return f"[{time},{action_number},{row['bytes']},{category_number}]"


def _changes(texts: Sequence[bytes]) -> Sequence[tuple[int, int, int, int] | None]:
    joined = b"[" + b",".join(texts) + b"]"
    try:
        found = _CHANGE.decode(joined)
    except (msgspec.DecodeError, RecursionError):
        return [_change(text) for text in texts]
    if all(_fits(change) for change in found) and msgspec.json.encode(found) == joined:
        return found
    return [_change(text) for text in texts]


def _change(text: bytes) -> tuple[int, int, int, int] | None:
    """The four numbers of an element; None if it has another form or formatting does not reproduce it."""
    try:
        found = _ONE.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if _fits(found) and msgspec.json.encode(found) == bytes(text) else None


def _fits(change: tuple[int, int, int, int]) -> bool:
    """Whether the numbers fit 64 bits; torch's numbers of action and category are never negative."""
    return all(-_LIMIT <= part < _LIMIT for part in change) and change[1] >= 0 and change[3] >= 0


def _named(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    names: Sequence[str | None],
    is_change: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> tuple[pa.Array, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The name of each number, and which numbers have one."""
    words = pa.array(names, pa.string())
    has_name = np.append(words.is_valid().to_numpy(zero_copy_only=False), False)
    places = np.where((numbers >= 0) & (numbers < len(names)), numbers, len(names))
    known = is_change & has_name[places]
    return words.take(pa.array(np.where(known, places, 0), mask=~known)), known
