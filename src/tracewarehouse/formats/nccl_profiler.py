"""Traces that the example profiler plug-in of NCCL writes: JSON with asynchronous begins and ends.

The plug-in writes a file per communicator and rank, or one per process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from msgspec.structs import asdict

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part, PartFormat
from tracewarehouse.formats.file_text import head_of, read_text
from tracewarehouse.formats.mapped import RAW_TYPES, arrow_table, contract_of, map_tables
from tracewarehouse.formats.source_tables import TextSource
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from pathlib import Path


NAME: Final = "nccl_profiler"
_FIRST: Final = late_regex(
    rb'\s*\[\s*\{[^{}]*"cat"\s*:\s*"(GROUP|GROUP_API|COLL|COLL_API|P2P|P2P_API|PROXY|GPU|CE_COLL)"'
)
_RANK: Final = late_regex(rb'"CommHash"\s*:\s*"?(\w+)"?\s*,\s*"Rank"\s*:\s*(\d{1,6})\b')
_PROCESS: Final = late_regex(rb'"pid"\s*:\s*"?(\d{1,10})\b')
_HEAD_BYTES: Final = 1 << 20
_BATCH_ROWS: Final = 1 << 14
_MOST_US: Final = 9e15
_HINT: Final = "the plug-in completes the file when the communicator is destroyed"


class _Record(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ph: str = ""
    id: int | str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    args: msgspec.Raw = msgspec.Raw(b"null")

    def row(self) -> dict[str, object]:
        """The row of a raw table; times in the file are microseconds, with three decimals."""
        row = asdict(self)
        ids = {name: None if row[name] is None else str(row[name]) for name in ("id", "pid", "tid")}
        ts_ns = None if self.ts is None or abs(self.ts) > _MOST_US else round(self.ts * 1000)
        return row | ids | {"ts_ns": ts_ns, "args": bytes(self.args).decode()}


_DECODE: Final = msgspec.json.Decoder(_Record).decode


class NcclProfilerSource(TextSource):
    """A Source with the activities of one process. The constructor reads the file."""

    clock = "unknown"

    def _read(self) -> None:
        text = self._take_text().buffer
        contract = contract_of(NAME)
        (table,) = contract.raw_tables
        schema = pa.schema([(name, RAW_TYPES[type_]) for name, type_ in table.columns])
        try:
            # As records, they would take more memory than the file.
            texts = msgspec.json.decode(text, type=list[msgspec.Raw])
            batches = []
            for first in range(0, len(texts), _BATCH_ROWS):
                records = map(_DECODE, texts[first : first + _BATCH_ROWS])
                rows = [record.row() for record in records if record.ph]
                batches.append(pa.RecordBatch.from_pylist(rows, schema))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            reason = f"not a complete trace of NCCL's profiler plug-in: {error}"
            raise TraceFormatError(self._path, reason, hint=_HINT) from error
        rank = _RANK.search(text)
        del text, texts  # they take more memory than their table
        tables = {table.name: arrow_table(table, NAME, pa.Table.from_batches(batches, schema))}
        map_tables(contract, tables, {}, self._rows, self._notes)
        self._notes.add("clock_not_utc", 1, "times are microseconds since the plug-in was loaded")
        if rank:
            self._notes.add("rank_assumed", 1, f"rank {int(rank[2])} of communicator {rank[1].decode()}")


class NcclProfilerFormat(PartFormat):
    """A Format."""

    name = NAME
    source = NcclProfilerSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a list of events that begins with one of the plug-in."""
        return _FIRST.match(head) is not None

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The process, with its rank in the first communicator."""
        head = head_of(path, _HEAD_BYTES)
        found = _RANK.search(head) or _RANK.search(read_text(path, keep=True).buffer)
        process = _PROCESS.search(head)
        rank = int(found[2]) if found else None
        return (Part(rank=rank, process=int(process[1]) if process else None),)
