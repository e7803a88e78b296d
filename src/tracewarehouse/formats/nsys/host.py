"""Host activities: CUDA API calls, and calls of the OS runtime, MPI and libraries.

`aten::mm, seq = 12, op_id = 9, sizes = [[8, 4], [4, 2]], input_op_ids = …`; all parts after the name are
optional. Texts differ in their numbers, names and sizes repeat. Texts are split at the marks, which takes a
tenth of the time of a regular expression; that is left to the texts whose parts are unusual.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.nsys.schema import process_rows
from tracewarehouse.formats.source_tables import (
    HAS_TEXT,
    Context,
    SourceBatch,
    counted,
    declared_types,
    encoded_texts,
    number_texts,
)
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracewarehouse.formats.databases import Database
    from tracewarehouse.formats.source_tables import ActivityRows

    Flags = NDArray[np.bool_]


_RUNTIME_CLASS, _DRIVER_CLASS, _BACKTRACE_CLASS = 0, 1, 67
# Versions and variants of an API function: cudaLaunchKernel_v7000 is cudaLaunchKernel.
_SUFFIX: Final = late_regex(r"(_v[0-9]+|_ptsz|_ptds)+$")
_DRIVER_NAME: Final = late_regex(r"cu[A-Z]")
# Columns that identify a call, which its copy with a call chain repeats.
_CALL_KEY: Final = ("start", "globalTid", "correlationId", "nameId")


def add_host_activities(context: Context, rows: ActivityRows) -> None:
    """Adds the API, OS runtime, MPI and library calls of the process."""
    _add_api_calls(context, rows)
    for table, category in schema.CALL_TABLES.items():
        for found in _call_batches(context, table):
            rows.add(found.rows, _call(found, category))


def _call_batches(context: Context, table: str) -> Iterator[SourceBatch]:
    database = context.database
    if not database.has(table, "start", "globalTid"):
        return
    columns = declared_types(database, table)
    for batch in process_rows(context, table, columns, "globalTid"):
        yield SourceBatch(context, table, batch)


def _add_api_calls(context: Context, rows: ActivityRows) -> None:
    """CUDA API calls. A copy of a call that only carries its call chain is merged into the call."""
    parts = [found.batch for found in _call_batches(context, schema.RUNTIME)]
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


COLUMN: Final = "binaryData"
# Domain and schema, each with 4 reserved bytes, then the sizes of the payload and of both.
_HEADER: Final = struct.Struct("<I4xI4xQQ")
# Types of payload entries: int32, uint64 and size_t.
_READERS: Final = {5: struct.Struct("<i"), 18: struct.Struct("<Q"), 22: struct.Struct("<Q")}
# Label of a payload entry → its argument.
_FIELDS: Final = {
    "NCCL communicator ID": "nsys.communicator", "Message size [bytes]": "nsys.message_bytes",
    "No. of ranks": "nsys.group_size", "Rank": "nsys.rank", "Peer rank": "nsys.peer", "Root": "nsys.root",
}  # fmt: skip
_COMMUNICATOR, _SIZE, _RANKS = "nsys.communicator", "nsys.message_bytes", "nsys.group_size"
# Their messages are what one rank contributes: together they are as large as the number of ranks times that.
_OF_ONE_RANK: Final = ("ncclAllGather", "ncclReduceScatter", "ncclAlltoAll")
# Only their root has a buffer for all ranks.
_OF_ROOT: Final = ("ncclGather", "ncclScatter")

Values = dict[str, int]
Fields = tuple[tuple[str, struct.Struct, int], ...]


class Payloads(Struct, frozen=True):
    """The schemas of an export: (domain, schema) → argument, reader and offset of each known entry."""

    schemas: Mapping[tuple[int, int], Fields]

    def of(self, data: bytes | None) -> Values:
        """The known values of a payload; empty if it is damaged or of another schema."""
        if data is None or len(data) < _HEADER.size:
            return {}
        domain, number, size, _ = _HEADER.unpack_from(data)
        payload = data[_HEADER.size : _HEADER.size + size]
        fields = self.schemas.get((domain, number), ())
        found = {
            name: reader.unpack_from(payload, offset)[0]
            for name, reader, offset in fields
            if 0 <= offset <= len(payload) - reader.size
        }
        return {name: value for name, value in found.items() if name == _COMMUNICATOR or value < 2**63}

    def read(self, found: SourceBatch) -> list[Values]:
        """The values of each row."""
        return [self.of(data) for data in found.binaries(COLUMN).to_pylist()]


def payloads(database: Database) -> Payloads | None:
    """The schemas of NCCL's payloads; None if the export has none."""
    table = schema.PAYLOAD_ENTRIES
    if not database.has(table, "domainId", "schemaId", "type", "name") or not database.has(
        schema.NVTX, COLUMN
    ):
        return None
    columns = {name: pa.int64() for name in ("domainId", "schemaId", "type", "offset")} | {
        "name": pa.string()
    }
    found: dict[tuple[int, int], dict[str, tuple[str, struct.Struct, int]]] = defaultdict(dict)
    for batch in database.batches(table, columns):
        for row in batch.to_pylist():
            name, reader = _FIELDS.get(row["name"] or ""), _READERS.get(row["type"])
            if name is not None and reader is not None:
                place = row["domainId"], row["schemaId"]
                found[place][name] = (name, reader, row["offset"] or 0)
    return Payloads({place: tuple(fields.values()) for place, fields in found.items()}) if found else None


def arguments(values: Sequence[Values]) -> dict[str, pa.Array]:
    """The values as arguments. Communicator ids use all 64 bits, so they are JSON texts of numbers."""
    found = {}
    for name in _FIELDS.values():
        column: list[Any] = [row.get(name) for row in values]
        if name == _COMMUNICATOR:
            column = [None if value is None else str(value) for value in column]
        found[name] = pa.array(column, pa.string() if name == _COMMUNICATOR else pa.int64())
    return {name: column for name, column in found.items() if column.null_count < len(column)}


def message_bytes(
    found: SourceBatch, names: pa.Array, values: Sequence[Values], is_backend: pa.Array
) -> pa.Array:
    """The bytes of each range of a collective: those of the call, or of the calls inside a framework's range.

    Sends and receives of a range count once, the larger sum. Null where a size or the number of ranks that it
    depends on is not recorded.
    """
    ranks = {row[_COMMUNICATOR]: row[_RANKS] for row in values if {_COMMUNICATOR, _RANKS} <= row.keys()}
    texts = names.to_pylist()
    threads, starts, ends = (found.ints(name).to_pylist() for name in ("globalTid", "start", "end"))
    own = {row: _total(texts[row] or "", value, ranks) for row, value in enumerate(values) if _SIZE in value}
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in pc.indices_nonzero(pc.fill_null(is_backend, False)).to_pylist():
        if starts[row] is not None:
            ranges[threads[row]].append((starts[row], row))
    for each in ranges.values():
        each.sort()
    inside: dict[int, list[tuple[str, int | None]]] = defaultdict(list)
    for row, size in own.items():
        around = ranges.get(threads[row], []) if starts[row] is not None else []
        at = bisect_right(around, (starts[row], len(values))) - 1
        if at >= 0 and (ends[row] or starts[row]) <= (ends[around[at][1]] or 0):
            inside[around[at][1]].append((texts[row] or "", size))
    sizes = own | {row: _sum(calls) for row, calls in inside.items()}
    return pa.array([sizes.get(row) for row in range(len(values))], pa.int64())


def _total(name: str, values: Values, ranks: Mapping[int, int]) -> int | None:
    size = values[_SIZE]
    if name in _OF_ONE_RANK:
        members = ranks.get(values.get(_COMMUNICATOR, 0))
        size = size * members if members is not None else -1
    return size if 0 <= size < 2**63 and name not in _OF_ROOT else None


def _sum(calls: Sequence[tuple[str, int | None]]) -> int | None:
    sums: dict[str, int] = defaultdict(int)
    for name, size in calls:
        if size is None:
            return None
        sums[name if name in ("ncclSend", "ncclRecv") else ""] += size
    return max(sums.values())


_LONGEST_NUMBER: Final = 18
_SIZES: Final = r"\[[0-9, \[\]-]*\]"
_OPERATOR: Final = (
    r"^(?P<name>(?s:.*?))(?:, seq = (?P<sequence>[0-9]{1,18}))?(?:, op_id = (?P<op_id>[0-9]{1,18}))?"
    rf"(?:, sizes = (?P<sizes>{_SIZES}))?(?:, input_op_ids = (?P<inputs>.*))?$"
)


class OperatorTexts(NamedTuple):
    """The parts of each text, null where it lacks one. A text that is not an operator's is all name."""

    name: pa.DictionaryArray
    sequence: pa.Array
    op_id: pa.Array
    sizes: pa.DictionaryArray
    inputs: pa.Array


def operator_texts(texts: pa.Array) -> OperatorTexts:
    """The parts of texts of ranges; numbers as integers."""
    rest, inputs, usual = _split(pc.fill_null(texts, ""), ", input_op_ids = ")
    rest, sizes, once = _split(rest, ", sizes = ")
    usual &= once & _are_sizes(sizes)
    rest, op_id, once = _split(rest, ", op_id = ")
    usual &= once & _are_numbers(op_id)
    name, sequence, once = _split(rest, ", seq = ")
    usual &= once & _are_numbers(sequence)
    if inputs.null_count < len(inputs):
        usual &= ~_flags(pc.match_substring(inputs, "\n"))
        inputs = _none_if_empty(inputs)
    parts = {"name": name, "sequence": sequence, "op_id": op_id, "sizes": sizes, "inputs": inputs}
    unusual = pa.array(~usual)
    if not usual.all():
        matched = pc.extract_regex(pc.fill_null(texts.filter(unusual), ""), _OPERATOR)
        parts = {
            key: pc.replace_with_mask(part, unusual, _none_if_empty(pc.struct_field(matched, key)))
            for key, part in parts.items()
        }
    name = parts["name"]
    if name.null_count or pc.any(pc.equal(name, "")).as_py():
        name = pc.coalesce(_none_if_empty(name), texts)
    return OperatorTexts(
        name.dictionary_encode(),
        parts["sequence"].cast(pa.int64()),
        parts["op_id"].cast(pa.int64()),
        parts["sizes"].dictionary_encode(),
        parts["inputs"],
    )


def _split(texts: pa.Array, mark: str) -> tuple[pa.Array, pa.Array, Flags]:
    """The texts before and after a mark, null where there is none; and whether it occurs at most once."""
    parts = pc.split_pattern(texts, mark)
    if len(parts.values) == len(texts):
        return texts, pa.nulls(len(texts), pa.string()), np.ones(len(texts), np.bool_)
    offsets = parts.offsets.to_numpy()
    first, count = offsets[:-1], np.diff(offsets)
    after = pa.array(first + 1, mask=count < 2)
    return parts.values.take(pa.array(first)), parts.values.take(after), count <= 2


def _are_numbers(texts: pa.Array) -> Flags:
    """Whether each text is a number that 64 bits hold, or null."""
    if texts.null_count == len(texts):
        return np.ones(len(texts), np.bool_)
    is_short = pc.less_equal(pc.binary_length(texts), _LONGEST_NUMBER)
    return _flags(pc.fill_null(pc.and_(pc.ascii_is_decimal(texts), is_short), True))


def _are_sizes(texts: pa.Array) -> Flags:
    """Whether each text is a list of input sizes, or null."""
    encoded = texts.dictionary_encode()
    known = pc.match_substring_regex(encoded.dictionary, f"^{_SIZES}$").take(encoded.indices)
    return _flags(pc.fill_null(known, True))


def _flags(found: pa.Array) -> Flags:
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)  # type: ignore[no-any-return]


def _none_if_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


_PUSH_POP: Final = (59, 70)
_START_END: Final = (60, 71)
_MARKS: Final = (34, 65)
# They name categories, threads, domains and CUDA objects: no events.
_NAMES: Final = (33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99)
_EVENTS: Final = (*_PUSH_POP, *_START_END, *_MARKS)
_CATEGORIES: Final = ("cpu_op", "library", "user_annotation")
_OPERATOR_CODE, _LIBRARY_CODE, _ANNOTATION_CODE = (
    pa.scalar(code, pa.int32()) for code in range(len(_CATEGORIES))
)
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
    for batch in _range_batches(context, known):
        types = batch.column("eventType")
        has_known_type = pc.is_in(types, value_set=pa.array([*_EVENTS, *_NAMES]))
        unknown = len(types) - (pc.sum(has_known_type).as_py() or 0)
        context.notes.add("kind_unknown", unknown, f"{schema.NVTX}.eventType")
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


def _range_batches(context: Context, known: Payloads | None) -> Iterator[pa.RecordBatch]:
    """The rows of the process; in one batch if calls with payloads may be far from the range around them."""
    columns = declared_types(context.database, schema.NVTX)
    if known is not None:
        columns[COLUMN] = pa.binary()
    found = process_rows(context, schema.NVTX, columns, "globalTid")
    if known is None:
        yield from found
    elif parts := list(found):
        yield from pa.Table.from_batches(parts).combine_chunks().to_batches()


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
    kind = pc.if_else(is_operator, _OPERATOR_CODE, pc.if_else(is_library, _LIBRARY_CODE, _ANNOTATION_CODE))
    category = encoded_texts(kind, pa.array(_CATEGORIES))
    shapes = _with_words(operators.sizes, pc.replace_substring(operators.sizes.dictionary, ", ", ","))
    times, thread = found.times(), found.thread()
    domain = found.ints("domainId")
    range_arguments = {
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
        range_arguments |= arguments(values)
        sizes = message_bytes(found, text, values, backend)
        # The element type is not recorded; the entry `bytes` of `dtypes` has elements of one byte.
        digits = number_texts(pc.if_else(pc.equal(kind, _ANNOTATION_CODE), sizes, _NO_INT))
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
        "args": found.arguments(range_arguments),
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
