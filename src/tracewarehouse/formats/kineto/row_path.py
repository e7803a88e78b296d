"""The row path: fills the columns of rows that a scanner flagged, from their text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.kineto import element
from tracewarehouse.formats.kineto.batch import DOUBLES
from tracewarehouse.formats.kineto.columns import BatchColumns, Fractions
from tracewarehouse.formats.kineto.identity import read_tokens
from tracewarehouse.formats.kineto.times import printed
from tracewarehouse.formats.kineto.typed_args import TYPED_INTS, TYPED_TEXTS, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import Rows
    from tracewarehouse.formats.kineto.words import Dictionaries

_CODES = ("ph", "cat", "name", "pid", "tid", "extra")


def fill_odd(
    columns: BatchColumns, rows: Rows, texts: Sequence[str], words: Dictionaries, *, in_ns: bool = False
) -> None:
    """All columns of these rows but the typed arguments; `in_ns`: the file's times are nanoseconds."""
    found = [element.row(text) for text in texts]
    _place_ids(found)
    for name in _CODES:
        values = pa.array([row[name] for row in found], pa.string())
        columns.set_codes(name, rows, words.of(name).codes_of(values))
    for name in ("args", "id"):
        values = pa.array([row[name] for row in found], pa.string())
        columns.set_texts("flow_id" if name == "id" else name, rows, values)
    _fill_times(columns, rows, found, in_ns)


def fill_times(columns: BatchColumns, rows: Rows, texts: Sequence[str], *, in_ns: bool = False) -> None:
    """Start and length of these rows."""
    _fill_times(columns, rows, [element.row(text) for text in texts], in_ns)


def to_ns(columns: BatchColumns, rows: Rows) -> None:
    """Makes of what the scanner took for microseconds in these rows the nanoseconds that they are.

    The file's digits are kept in every row: printing the time gives others.
    """
    fractions = {}
    for name in ("ts", "dur"):
        values, valid = columns.ints.get(name, _nothing(columns.rows))
        _keep_digits(columns, name, rows[valid[rows] & ~_has_text(columns, name)[rows]])
        values[rows], rest = np.divmod(values[rows], 1000)
        fractions[name] = (rest * 1000).astype(np.int32)
    columns.add_fractions(Fractions(rows, **fractions))


def _nothing(rows: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)


def _has_text(columns: BatchColumns, name: str) -> NDArray[np.bool_]:
    texts = columns.texts.get(f"{name}_text")
    if texts is None:
        return np.zeros(columns.rows, np.bool_)
    found: NDArray[np.bool_] = texts.is_valid().to_numpy(zero_copy_only=False)
    return found


def _keep_digits(columns: BatchColumns, name: str, rows: Rows) -> None:
    if rows.size:
        columns.set_texts(f"{name}_text", rows, printed(columns.ints[name][0][rows]))


def fill_arguments(columns: BatchColumns, rows: Rows, words: Dictionaries) -> None:
    """The typed arguments of these rows, from the column `args`."""
    args = columns.texts.get("args")
    if args is None:
        return
    table = typed(args if len(rows) == columns.rows else args.take(pa.array(rows)))
    for name in TYPED_INTS:
        columns.set_ints(name, rows, *_numbers(table.column(name), np.int64))
    for name in DOUBLES:
        columns.set_doubles(name, rows, *_numbers(table.column(name), np.float64))
    for name in TYPED_TEXTS:
        texts = table.column(name).cast(pa.string()).combine_chunks()
        if texts.null_count < len(texts) or name in columns.codes:
            columns.set_codes(name, rows, words.of(name).codes_of(texts))
    columns.collective[rows] = table.column("has_collective").to_numpy()


def _numbers(column: pa.ChunkedArray, dtype: type[np.generic]) -> tuple[NDArray, NDArray[np.bool_]]:  # type: ignore[type-arg]
    valid = column.is_valid().to_numpy().astype(np.bool_, copy=False)
    return pc.fill_null(column, 0).to_numpy().astype(dtype, copy=False), valid


def _place_ids(found: Sequence[element.Row]) -> None:
    """The ids as text; where that loses whether one was a number or a string, `extra` has it too."""
    with_id = [row for row in found if row["id"] is not None]
    if not with_id:
        return
    tokens = [row["id"] or "" for row in with_id]
    known = read_tokens(tokens)
    for row, token, text, keeps_type in zip(with_id, tokens, known.texts, known.keeps_type, strict=True):
        row["id"] = text
        if not keeps_type:
            rest = row["extra"]
            row["extra"] = f'{{"id": {token}, {rest[1:-1]}}}' if rest else f'{{"id": {token}}}'


def _fill_times(columns: BatchColumns, rows: Rows, found: Sequence[element.Row], in_ns: bool) -> None:
    time_of = element.time_in_ns if in_ns else element.time_of
    texts = {name: [row[f"{name}_text"] for row in found] for name in ("ts", "dur")}
    times = {name: [time_of(text) for text in values] for name, values in texts.items()}
    for at, text in enumerate(texts["ts"]):
        if times["ts"][at] is None and (far := element.far_time_of(text)) is not None and not in_ns:
            columns.far[int(rows[at])] = far
    fractions = {}
    for name, values in times.items():
        ns = np.fromiter((time.ns if time else 0 for time in values), np.int64, len(values))
        valid = np.fromiter((time is not None for time in values), np.bool_, len(values))
        columns.set_ints(name, rows, ns, valid)
        fractions[name] = np.fromiter(
            (time.fraction if time else 0 for time in values), np.int32, len(values)
        )
    has_fraction = (fractions["ts"] > 0) | (fractions["dur"] > 0) | in_ns
    for name, values in times.items():
        kept = [
            text if keep or not time or text != element.printed(time.ns) else None
            for text, time, keep in zip(texts[name], values, has_fraction.tolist(), strict=True)
        ]
        columns.set_texts(f"{name}_text", rows, pa.array(kept, pa.string()))
    if has_fraction.any():
        selected = Fractions(
            rows[has_fraction], fractions["ts"][has_fraction], fractions["dur"][has_fraction]
        )
        columns.add_fractions(selected)
