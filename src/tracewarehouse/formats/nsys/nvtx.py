"""NVTX ranges and marks: operators of PyTorch's emit_nvtx, NCCL calls, and annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.activity_rows import HAS_TEXT
from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.nsys.operator_texts import OperatorTexts, operator_texts
from tracewarehouse.formats.nsys.payloads import COLUMN, Payloads, message_bytes, payloads
from tracewarehouse.formats.nsys.payloads import arguments as payload_arguments
from tracewarehouse.formats.nsys.process_rows import process_rows
from tracewarehouse.formats.source_tables import (
    Context,
    SourceBatch,
    declared_types,
    encoded_texts,
    number_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracewarehouse.formats.activity_rows import ActivityRows

_PUSH_POP: Final = (59, 70)
_START_END: Final = (60, 71)
_MARKS: Final = (34, 65)
# They name categories, threads, domains and CUDA objects: no events.
_NAMES: Final = (33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99)
_EVENTS: Final = (*_PUSH_POP, *_START_END, *_MARKS)
_CATEGORIES: Final = ("cpu_op", "library", "user_annotation")
_OPERATOR, _LIBRARY, _ANNOTATION = (pa.scalar(code, pa.int32()) for code in range(len(_CATEGORIES)))
_NO_INT: Final = pa.scalar(None, pa.int64())
_BACKEND_RANGE: Final = r"^(nccl|gloo|mpi|ucc|record_param_comms):"
_NCCL_CALL: Final = r"^nccl[A-Z]"
# NCCL functions that are collectives, and the names of PyTorch's ranges for them.
_NCCL_COLLECTIVES: Final = {
    "ncclAllReduce": "nccl:all_reduce", "ncclBroadcast": "nccl:broadcast", "ncclBcast": "nccl:broadcast",
    "ncclReduce": "nccl:reduce", "ncclAllGather": "nccl:all_gather",
    "ncclReduceScatter": "nccl:reduce_scatter", "ncclSend": "nccl:send", "ncclRecv": "nccl:recv",
    "ncclAlltoAll": "nccl:all_to_all", "ncclGather": "nccl:gather", "ncclScatter": "nccl:scatter",
}  # fmt: skip


def add_nvtx(context: Context, rows: ActivityRows) -> bool:
    """Adds the NVTX ranges and marks of the process, and returns whether collectives have message sizes."""
    database = context.database
    if not database.has(schema.NVTX, "start", "globalTid", "eventType"):
        return False
    known = payloads(database)
    has_backend_ranges = has_sizes = False
    for batch in _batches(context, known):
        types = batch.column("eventType")
        _note_unknown(context, types)
        batch = batch.filter(pc.is_in(types, value_set=pa.array(_EVENTS)))
        found = SourceBatch(context, schema.NVTX, batch)
        if not found.rows:
            continue
        text = found.text()
        operators = operator_texts(text)
        backend = _matches(operators.name, _BACKEND_RANGE)
        has_backend_ranges = has_backend_ranges or bool(pc.any(backend).as_py())
        columns = _ranges(found, text, known, operators, backend, has_backend_ranges=has_backend_ranges)
        has_sizes = has_sizes or columns["bytes"].null_count < found.rows
        rows.add(found.rows, columns)
    return has_sizes


def _batches(context: Context, known: Payloads | None) -> Iterator[pa.RecordBatch]:
    """The rows of the process; in one batch if calls with payloads may be far from the range around them."""
    columns = declared_types(context.database, schema.NVTX)
    if known is not None:
        columns[COLUMN] = pa.binary()
    found = process_rows(context, schema.NVTX, columns, "globalTid")
    if known is None:
        yield from found
    elif parts := list(found):
        yield from pa.Table.from_batches(parts).combine_chunks().to_batches()


def _note_unknown(context: Context, types: pa.Array) -> None:
    known = pc.is_in(types, value_set=pa.array([*_EVENTS, *_NAMES]))
    rows = len(types) - (pc.sum(known).as_py() or 0)
    context.notes.add("kind_unknown", rows, f"{schema.NVTX}.eventType")


def _ranges(
    found: SourceBatch,
    text: pa.Array,
    known: Payloads | None,
    operators: OperatorTexts,
    backend: pa.Array,
    *,
    has_backend_ranges: bool,
) -> dict[str, pa.Array | pa.Scalar]:
    types, ends = found.ints("eventType"), found.ints("end")
    is_range = pc.is_in(types, value_set=pa.array([*_PUSH_POP, *_START_END]))
    is_push = pc.is_in(types, value_set=pa.array(_PUSH_POP))
    has_end = pc.and_(is_range, ends.is_valid())
    unclosed = pc.sum(pc.and_(is_range, pc.invert(has_end))).as_py() or 0
    found.context.notes.add("open_range", unclosed, f"{schema.NVTX}: a range without an end")
    has_number = pc.or_(operators.op_id.is_valid(), operators.sequence.is_valid())
    is_operator = pc.and_(has_number, pc.and_(is_push, pc.invert(backend)))
    name, is_library = _nccl_names(operators.name, has_backend_ranges=has_backend_ranges)
    kind = pc.if_else(is_operator, _OPERATOR, pc.if_else(is_library, _LIBRARY, _ANNOTATION))
    category = encoded_texts(kind, pa.array(_CATEGORIES))
    shapes = _with_words(operators.sizes, pc.replace_substring(operators.sizes.dictionary, ", ", ","))
    times, thread = found.times(), found.thread()
    domain = found.ints("domainId")
    arguments = {
        "Input Dims": shapes,
        "Sequence number": operators.sequence,
        "nsys.op_id": operators.op_id,
        "nsys.input_op_ids": _quoted(operators.inputs),
        "nsys.domainId": pc.if_else(pc.equal(domain, 0), _NO_INT, domain),
        "nsys.eventType": pc.if_else(is_push, _NO_INT, types),
    }
    values = [] if known is None else known.read(found)
    sizes = pa.nulls(found.rows, pa.int64())
    if any(values):
        arguments |= payload_arguments(values)
        sizes = message_bytes(found, text, values, backend)
        # The element type is not recorded; the entry `bytes` of `dtypes` has elements of one byte.
        digits = number_texts(pc.if_else(pc.equal(kind, _ANNOTATION), sizes, _NO_INT))
        of_bytes = pc.binary_join_element_wise("[[", digits, "]]", "")
        shapes = pc.coalesce(shapes.cast(pa.string()), of_bytes)
    has_text = pc.or_(found.has_text, operators.inputs.is_valid())
    return {
        "ph": encoded_texts(pc.cast(has_end, pa.int32()), pa.array(["i", "X"])),
        "category": category,
        "raw_category": category,
        "name": name,
        **times,
        "dur_ns": pc.if_else(has_end, times["dur_ns"], _NO_INT),
        **thread,
        "sequence_number": operators.sequence,
        "shapes": shapes,
        "dtypes": pc.if_else(pc.and_(sizes.is_valid(), shapes.is_valid()), '["bytes"]', None),
        "bytes": sizes,
        "args": found.arguments(arguments),
        HAS_TEXT: has_text,
    }


def _nccl_names(name: pa.DictionaryArray, *, has_backend_ranges: bool) -> tuple[pa.DictionaryArray, pa.Array]:
    """The names, and which ranges are calls of the NCCL library.

    Kernels launch inside ncclGroupEnd, so an annotation of that name would hide the framework's range of the
    collective. A collective function becomes an annotation only if the framework wrote no ranges.
    """
    is_call = _matches(name, _NCCL_CALL)
    if has_backend_ranges or not pc.any(is_call).as_py():
        return name, is_call
    texts = name.dictionary.to_pylist()
    renamed = _with_words(name, pa.array([_NCCL_COLLECTIVES.get(text, text) for text in texts], pa.string()))
    is_collective = pa.array([text in _NCCL_COLLECTIVES for text in texts], pa.bool_()).take(name.indices)
    return renamed, pc.and_(is_call, pc.invert(pc.fill_null(is_collective, False)))


def _matches(texts: pa.DictionaryArray, pattern: str) -> pa.Array:
    """Whether each text matches; False for null."""
    return pc.fill_null(pc.match_substring_regex(texts.dictionary, pattern).take(texts.indices), False)


def _with_words(texts: pa.DictionaryArray, words: pa.Array) -> pa.DictionaryArray:
    """The texts with each word replaced by the one at its position."""
    return encoded_texts(texts.indices, words)


def _quoted(texts: pa.Array) -> pa.Array:
    """As JSON strings; operator ids need no escapes."""
    plain = pc.if_else(
        pc.match_substring_regex(texts, r'^[^"\\\x00-\x1f]*$'), texts, pa.scalar(None, pa.string())
    )
    return pc.binary_join_element_wise('"', plain, '"', "")
