"""Host activities: CUDA API calls, and calls of the OS runtime, MPI and libraries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.activity_rows import HAS_TEXT
from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.nsys.process_rows import process_rows
from tracewarehouse.formats.source_tables import Context, SourceBatch, counted, declared_types, encoded_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracewarehouse.formats.activity_rows import ActivityRows

_RUNTIME_CLASS, _DRIVER_CLASS, _BACKTRACE_CLASS = 0, 1, 67
# Versions and variants of an API function: cudaLaunchKernel_v7000 is cudaLaunchKernel.
_SUFFIX: Final = re.compile(r"(_v[0-9]+|_ptsz|_ptds)+$")
_DRIVER_NAME: Final = re.compile(r"cu[A-Z]")
# Columns that identify a call, which its copy with a call chain repeats.
_CALL_KEY: Final = ("start", "globalTid", "correlationId", "nameId")


def add_host_activities(context: Context, rows: ActivityRows) -> None:
    """Adds the API, OS runtime, MPI and library calls of the process."""
    _add_api_calls(context, rows)
    for table, category in schema.CALL_TABLES.items():
        for found in _batches(context, table):
            rows.add(found.rows, _call(found, category))


def _batches(context: Context, table: str) -> Iterator[SourceBatch]:
    database = context.database
    if not database.has(table, "start", "globalTid"):
        return
    columns = declared_types(database, table)
    for batch in process_rows(context, table, columns, "globalTid"):
        yield SourceBatch(context, table, batch)


def _add_api_calls(context: Context, rows: ActivityRows) -> None:
    """CUDA API calls. A copy of a call that only carries its call chain is merged into the call."""
    parts = [found.batch for found in _batches(context, schema.RUNTIME)]
    if not parts:
        return
    table = pa.Table.from_batches(parts)
    if "eventClass" in table.column_names:
        table = _without_copies(context, table)
    for batch in table.to_batches(max_chunksize=1 << 20):
        found = SourceBatch(context, schema.RUNTIME, batch)
        rows.add(found.rows, _api_call(found))


def _without_copies(context: Context, table: pa.Table) -> pa.Table:
    classes = pc.fill_null(table.column("eventClass"), -1).to_numpy()
    copies = np.flatnonzero(classes == _BACKTRACE_CLASS)
    if not copies.size:
        return table
    original, copy = _pair(table, np.flatnonzero(classes != _BACKTRACE_CLASS), copies)
    context.notes.add("callchain_copy", len(copy), f"{schema.RUNTIME}: {counted(len(copy), 'row')}")
    if "callchainId" in table.column_names:
        chains = pc.fill_null(table.column("callchainId"), 0).to_numpy().copy()
        valid = table.column("callchainId").is_valid().to_numpy().copy()
        chains[original], valid[original] = chains[copy], valid[copy]
        place = table.column_names.index("callchainId")
        table = table.set_column(place, "callchainId", pa.array(chains, mask=~valid))
    keep = np.ones(table.num_rows, np.bool_)
    keep[copy] = False
    return table.filter(pa.array(keep))


def _pair(
    table: pa.Table, calls: NDArray[np.int64], copies: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of calls and of their copies; a copy without a call is left out."""
    keys = [name for name in _CALL_KEY if name in table.column_names]
    values = {name: table.column(name).combine_chunks() for name in keys}
    left = pa.table({name: column.take(pa.array(calls)) for name, column in values.items()} | {"call": calls})
    right = pa.table(
        {name: column.take(pa.array(copies)) for name, column in values.items()} | {"copy": copies}
    )
    # Of equal calls the first one is the original.
    left = left.group_by(keys).aggregate([("call", "min")])
    joined = right.join(left, keys, join_type="inner")
    return joined.column("call_min").to_numpy(), joined.column("copy").to_numpy()


def _api_call(found: SourceBatch) -> dict[str, pa.Array | pa.Scalar]:
    names = found.strings("nameId", function_name)
    classes = pc.fill_null(found.ints("eventClass"), -1)
    by_name = pc.match_substring_regex(names.dictionary, f"^{_DRIVER_NAME.pattern}").take(names.indices)
    known = pc.is_in(classes, value_set=pa.array([_RUNTIME_CLASS, _DRIVER_CLASS, _BACKTRACE_CLASS, -1]))
    unknown = found.rows - (pc.sum(known).as_py() or 0)
    found.context.notes.add("kind_unknown", unknown, f"{found.table}.eventClass")
    is_driver = pc.or_(
        pc.equal(classes, _DRIVER_CLASS),
        pc.and_(pc.not_equal(classes, _RUNTIME_CLASS), pc.fill_null(by_name, False)),
    )
    category = encoded_texts(pc.cast(is_driver, pa.int32()), pa.array(["cuda_runtime", "cuda_driver"]))
    correlation, result = found.ints("correlationId"), found.ints("returnValue")
    arguments = {
        "correlation": correlation,
        "nsys.returnValue": pc.if_else(pc.equal(result, 0), pa.scalar(None, pa.int64()), result),
    }
    times, thread = found.times(), found.thread()
    has_text = found.has_text
    return {
        "ph": pa.scalar("X"),
        "category": category,
        "raw_category": category,
        "name": names,
        **times,
        **thread,
        "correlation": correlation,
        "args": found.arguments(arguments),
        HAS_TEXT: has_text,
    }


def function_name(text: str) -> str:
    """The name of an API function without version and variant."""
    return _SUFFIX.sub("", text)


def _call(found: SourceBatch, category: str) -> dict[str, pa.Array | pa.Scalar]:
    """A call of a library: its name is a string id in one of two columns."""
    name = found.first_strings("nameId", "textId")
    times, thread = found.times(), found.thread()
    has_text = found.has_text
    return {
        "ph": pa.scalar("X"),
        "category": pa.scalar(category),
        "raw_category": pa.scalar(category),
        "name": name,
        **times,
        **thread,
        "args": found.arguments(),
        HAS_TEXT: has_text,
    }
