"""NVTX payloads of NCCL calls: communicator, message size, ranks and peers, by the schemas in the export."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.nsys import schema

if TYPE_CHECKING:
    from tracewarehouse.formats.source_tables import SourceBatch
    from tracewarehouse.formats.sqlite_file import Database

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


@dataclass(frozen=True)
class Payloads:
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
