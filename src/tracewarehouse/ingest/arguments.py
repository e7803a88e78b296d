"""The column `args` of `events` as its files hold it, and back: see `contracts.contract`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.contracts.contract import ARGS, ARGS_SQL, NUMBERS, PRINTED, REPEATED, TEMPLATE
from tracewarehouse.formats.kineto.columns import run_sql_over
from tracewarehouse.formats.kineto.library import available
from tracewarehouse.formats.kineto.scanner import NativeScanner

# With more templates in a row group, the texts are stored instead.
_MOST_TEMPLATES: Final = 20_000


def split(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, pa.ChunkedArray]:
    """The columns of a row group with the arguments as templates and numbers."""
    found = {name: column for name, column in columns.items() if name != ARGS}
    texts = _joined(columns[ARGS]).cast(pa.string())
    known = [_joined(found[name]) for name in REPEATED]
    native = NativeScanner(words_most=_MOST_TEMPLATES) if available() else None
    cut = native.split(texts, known, len(NUMBERS)) if native else None
    # Without numbers, a template is the text itself.
    template, numbers = cut or (pc.replace_substring(texts, "%", "%%"), [])
    nulls = [pa.nulls(len(texts), pa.int64())] * (len(NUMBERS) - len(numbers))
    made = dict(zip((TEMPLATE, *NUMBERS), (template, *numbers, *nulls), strict=True))
    return found | {name: pa.chunked_array([column]) for name, column in made.items()}


def _joined(column: pa.ChunkedArray) -> pa.Array:
    found = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return found.storage if isinstance(found, pa.ExtensionArray) else found


def in_files(names: Iterable[str]) -> list[str]:
    """The columns in files of `events` that these columns are made from."""
    listed = list(names)
    return list(dict.fromkeys([*listed, TEMPLATE, *PRINTED])) if ARGS in listed else listed


def with_args(rows: pa.Table) -> pa.Table:
    """Rows of a file with the column `args` if they have its template."""
    if TEMPLATE not in rows.column_names:
        return rows
    columns = {name: rows.column(name) for name in (TEMPLATE, *PRINTED)}
    args = run_sql_over(f"SELECT {ARGS_SQL} AS args FROM given", columns).column(ARGS)
    return rows.drop_columns([TEMPLATE, *NUMBERS]).append_column(ARGS, args)
