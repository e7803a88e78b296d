"""The argument columns of activities, from stored texts of `args`: by the scanner and row path that read files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.kineto import row_path
from tracewarehouse.formats.kineto.activities import ratios
from tracewarehouse.formats.kineto.batch import ODD, SLOW, Batch
from tracewarehouse.formats.kineto.columns import BatchColumns
from tracewarehouse.formats.kineto.kept import COLLECTIVE, KeptBatch, kept
from tracewarehouse.formats.kineto.row_scanner import RowScanner
from tracewarehouse.formats.kineto.scanner import RefusedError, Scanner
from tracewarehouse.formats.kineto.scanners import new_scanner
from tracewarehouse.formats.kineto.typed_args import TYPED_INTS, TYPED_TEXTS
from tracewarehouse.formats.kineto.words import Dictionaries

# Bytes of text that are read at once: offsets have 32 bits.
_AT_ONCE: Final = 64 << 20


def argument_columns(args: pa.Array) -> Mapping[str, pa.Array]:
    """The columns of activities that are made from arguments alone, one row per text; null where it is null."""
    there = args.drop_null()
    parts = [_columns(part) for part in _parts(there)]
    names = dict.fromkeys(name for part in parts for name in part)
    found = {name: pa.concat_arrays([part[name] for part in parts]) for name in names}
    if args.null_count:
        valid = args.is_valid().to_numpy(zero_copy_only=False)
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        found = {name: column.take(places) for name, column in found.items()}
    return found


def _parts(args: pa.Array) -> list[pa.Array]:
    """The texts in slices of a bounded size; one, empty, where there is none."""
    lengths = np.cumsum(pc.binary_length(args).to_numpy(zero_copy_only=False)) // _AT_ONCE
    starts = [0, *np.flatnonzero(np.diff(lengths)) + 1]
    ends = [*starts[1:], len(args)]
    return [args.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _columns(args: pa.Array) -> dict[str, pa.Array]:
    text = b"[" + b",".join(b'{"args":%b}' % one.encode() for one in args.to_pylist()) + b"]"
    words = Dictionaries()
    found = [_activity_columns(KeptBatch(kept(columns, words)), words) for columns in _read(text, words)]
    names = _activity_columns(
        KeptBatch(pa.RecordBatch.from_pydict({COLLECTIVE: pa.array([], pa.bool_())})), words
    )
    return {name: pa.concat_arrays([empty, *(one[name] for one in found)]) for name, empty in names.items()}


def _read(text: bytes, words: Dictionaries) -> list[BatchColumns]:
    try:
        batches = _batches(new_scanner(), text)
    except RefusedError:
        batches = _batches(RowScanner(), text)
    return [_filled(batch, words) for batch in batches]


def _batches(scanner: Scanner, text: bytes) -> list[Batch]:
    found = scanner.feed_array(text)
    while (batch := scanner.flush()) is not None:
        found.append(batch)
    return found


def _filled(batch: Batch, words: Dictionaries) -> BatchColumns:
    words.begin(batch.words, batch.restarted)
    columns = BatchColumns.of(batch)
    odd = np.flatnonzero(batch.flags & ODD)
    if odd.size:
        row_path.fill_odd(columns, odd, batch.texts["text"].take(pa.array(odd)).to_pylist(), words)
    typed = np.flatnonzero(batch.flags & (ODD | SLOW))
    if typed.size:
        row_path.fill_arguments(columns, typed, words)
    return columns


def _activity_columns(batch: KeptBatch, words: Dictionaries) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    for name in TYPED_INTS:
        found[name] = batch.column(name, pa.int64())
    for name in TYPED_TEXTS:
        coded = batch.coded(name, words)
        found[name] = coded.words.take(pa.array(coded.codes, mask=coded.codes < 0))
    found |= ratios(batch)
    found[COLLECTIVE] = pc.fill_null(batch.column(COLLECTIVE, pa.bool_()), False)
    return found
