"""NVTX ranges and marks: operators of PyTorch's emit_nvtx, NCCL calls, and annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.activity_rows import HAS_TEXT
from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.nsys.payloads import COLUMN, Payloads, message_bytes, payloads
from tracewarehouse.formats.nsys.payloads import arguments as payload_arguments
from tracewarehouse.formats.source_tables import Context, SourceBatch, declared_types, number_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracewarehouse.formats.activity_rows import ActivityRows

_PUSH_POP: Final = (59, 70)
_START_END: Final = (60, 71)
_MARKS: Final = (34, 65)
# They name categories, threads, domains and CUDA objects: no events.
_NAMES: Final = (33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99)
_EVENTS: Final = (*_PUSH_POP, *_START_END, *_MARKS)
# `aten::mm, seq = 12, op_id = 9, sizes = [[8, 4], [4, 2]], input_op_ids = …`; all parts after the name are
# optional.
_OPERATOR: Final = (
    r"^(?P<name>(?s:.*?))(?:, seq = (?P<seq>[0-9]{1,18}))?(?:, op_id = (?P<op_id>[0-9]{1,18}))?"
    r"(?:, sizes = (?P<sizes>\[[0-9, \[\]-]*\]))?(?:, input_op_ids = (?P<inputs>.*))?$"
)
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
        text = pc.coalesce(found.texts("text"), found.strings("textId"))
        backend = pc.match_substring_regex(pc.fill_null(text, ""), _BACKEND_RANGE)
        has_backend_ranges = has_backend_ranges or bool(pc.any(backend).as_py())
        columns = _ranges(found, text, known, has_backend_ranges=has_backend_ranges)
        has_sizes = has_sizes or columns["bytes"].null_count < found.rows
        rows.add(found.rows, columns)
    return has_sizes


def _batches(context: Context, known: Payloads | None) -> Iterator[pa.RecordBatch]:
    """The rows of the process; in one batch if calls with payloads may be far from the range around them."""
    columns = declared_types(context.database, schema.NVTX)
    if known is not None:
        columns[COLUMN] = pa.binary()
    found = context.database.batches(schema.NVTX, columns, schema.process_condition("globalTid", context.pid))
    if known is None:
        yield from found
    elif parts := list(found):
        yield from pa.Table.from_batches(parts).combine_chunks().to_batches()


def _note_unknown(context: Context, types: pa.Array) -> None:
    known = pc.is_in(types, value_set=pa.array([*_EVENTS, *_NAMES]))
    rows = len(types) - (pc.sum(known).as_py() or 0)
    context.notes.add("kind_unknown", rows, f"{schema.NVTX}.eventType")


def _ranges(
    found: SourceBatch, text: pa.Array, known: Payloads | None, *, has_backend_ranges: bool
) -> dict[str, pa.Array | pa.Scalar]:
    types, ends = found.ints("eventType"), found.ints("end")
    fields = pc.extract_regex(pc.fill_null(text, ""), _OPERATOR)
    name, sequence, op_id, sizes, inputs = (
        _none_if_empty(fields.field(place)) for place in range(fields.type.num_fields)
    )
    name = pc.coalesce(name, text)
    is_range = pc.is_in(types, value_set=pa.array([*_PUSH_POP, *_START_END]))
    is_push = pc.is_in(types, value_set=pa.array(_PUSH_POP))
    has_end = pc.and_(is_range, ends.is_valid())
    unclosed = pc.sum(pc.and_(is_range, pc.invert(has_end))).as_py() or 0
    found.context.notes.add("open_range", unclosed, f"{schema.NVTX}: a range without an end")
    backend = pc.match_substring_regex(pc.fill_null(name, ""), _BACKEND_RANGE)
    is_operator = pc.and_(pc.or_(op_id.is_valid(), sequence.is_valid()), pc.and_(is_push, pc.invert(backend)))
    name, is_library = _nccl_names(name, has_backend_ranges=has_backend_ranges)
    category = pc.if_else(is_operator, "cpu_op", pc.if_else(is_library, "library", "user_annotation"))
    numbers = {"Sequence number": _int(sequence), "nsys.op_id": _int(op_id)}
    shapes = pc.replace_substring(sizes, ", ", ",")
    times, thread = found.times(), found.thread()
    arguments = {"Input Dims": shapes, **numbers, "nsys.input_op_ids": _quoted(inputs)}
    zero_domain = found.ints("domainId")
    arguments["nsys.domainId"] = pc.if_else(
        pc.equal(zero_domain, 0), pa.scalar(None, pa.int64()), zero_domain
    )
    mark = pc.if_else(is_push, pa.scalar(None, pa.int64()), types)
    arguments["nsys.eventType"] = mark
    values = [] if known is None else known.read(found)
    sizes = pa.nulls(found.rows, pa.int64())
    if any(values):
        arguments |= payload_arguments(values)
        sizes = message_bytes(found, text, values, backend)
        # The element type is not recorded; the entry `bytes` of `dtypes` has elements of one byte.
        digits = number_texts(pc.if_else(pc.equal(category, "user_annotation"), sizes, None))
        shapes = pc.coalesce(shapes, pc.binary_join_element_wise("[[", digits, "]]", ""))
    has_text = found.has_text
    return {
        "ph": pc.if_else(has_end, "X", "i"),
        "category": category,
        "raw_category": category,
        "name": name,
        **{
            key: pc.if_else(has_end, values, None) if key == "dur_ns" else values
            for key, values in times.items()
        },
        **thread,
        "sequence_number": numbers["Sequence number"],
        "shapes": shapes,
        "dtypes": pc.if_else(pc.and_(sizes.is_valid(), shapes.is_valid()), '["bytes"]', None),
        "bytes": sizes,
        "args": found.arguments(arguments),
        HAS_TEXT: has_text,
    }


def _nccl_names(name: pa.Array, *, has_backend_ranges: bool) -> tuple[pa.Array, pa.Array]:
    """The names, and which ranges are calls of the NCCL library.

    Kernels launch inside ncclGroupEnd, so an annotation of that name would hide the framework's range of the
    collective. A collective function becomes an annotation only if the framework wrote no ranges.
    """
    is_call = pc.match_substring_regex(pc.fill_null(name, ""), _NCCL_CALL)
    if has_backend_ranges or not pc.any(is_call).as_py():
        return name, is_call
    encoded = name.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    renamed = pa.array([_NCCL_COLLECTIVES.get(text, text) for text in texts], pa.string()).take(
        encoded.indices
    )
    is_collective = pa.array([text in _NCCL_COLLECTIVES for text in texts], pa.bool_()).take(encoded.indices)
    return renamed, pc.and_(is_call, pc.invert(pc.fill_null(is_collective, False)))


def _none_if_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _int(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.int64())


def _quoted(texts: pa.Array) -> pa.Array:
    """As JSON strings; operator ids need no escapes."""
    plain = pc.if_else(
        pc.match_substring_regex(texts, r'^[^"\\\x00-\x1f]*$'), texts, pa.scalar(None, pa.string())
    )
    return pc.binary_join_element_wise('"', plain, '"', "")
