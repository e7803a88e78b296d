"""From chunks of events to rows of `raw`, without their secrets, while the next chunk is read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from queue import Full, Queue
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from tracewarehouse.reader import typed
from tracewarehouse.reader.redact import Redaction, redact_events
from tracewarehouse.reader.strict import CHUNK_BYTES, elements, minify

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Progress = Callable[[int], None]
_TEXTS: Final = pa.schema([("event_id", pa.int64()), ("text", pa.string()), ("repaired", pa.bool_())])
_PATIENCE_S: Final = 0.2


@dataclass(frozen=True)
class Batch:
    """Texts of consecutive events without blanks; `mended` are those that are not verbatim."""

    texts: list[msgspec.Raw]
    mended: tuple[int, ...]
    bytes_read: int


def batch(text: bytes, mended: tuple[int, ...] = ()) -> Batch | None:
    """The events of a JSON array; None where it is not strict JSON."""
    small = minify(text)
    texts = elements(small) if small is not None else None
    return Batch(texts, mended, len(text)) if texts is not None else None


def strings(texts: Sequence[msgspec.Raw]) -> pa.StringArray:
    """The texts, which are UTF-8, as they lie in memory: checking each costs more than all else here."""
    ends = array("i", accumulate(map(len, texts), initial=0))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


class Stopped(Exception):
    """No more events come: what was stored of the file does not count."""


@dataclass
class Loader:
    """Gathers small batches for DuckDB, which stores them in a thread; at its end all is stored."""

    con: DuckDBPyConnection
    run_id: str
    rank: int
    salt: bytes
    keep_texts: bool
    progress: Progress | None
    rows: int = 0
    redactions: list[Redaction] = field(default_factory=list)
    _texts: list[msgspec.Raw] = field(default_factory=list)
    _mended: list[int] = field(default_factory=list)
    _bytes: int = 0
    _done: int = 0

    def __enter__(self) -> Loader:
        self._ahead: Queue[pa.RecordBatch | Stopped | None] = Queue(1)
        self._thread = ThreadPoolExecutor(1)
        reader = pa.RecordBatchReader.from_batches(_TEXTS, self._batches())
        self._stored = self._thread.submit(
            typed.write, self.con, reader, self.run_id, self.rank, keep_texts=self.keep_texts
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self._flush()
            self._put(None if kind is None else Stopped())
            if kind is None:
                self._stored.result()
        finally:
            self._thread.shutdown()

    def add(self, found: Batch) -> None:
        """The next events of the file."""
        self._mended += [len(self._texts) + at for at in found.mended]
        self._texts += found.texts
        self._bytes += found.bytes_read
        if self._bytes >= CHUNK_BYTES // 2:
            self._flush()

    def _flush(self) -> None:
        if self._texts:
            self._put(self._batch())
            self._done += self._bytes
        if self.progress is not None:
            self.progress(self._done)
        self._texts, self._mended, self._bytes = [], [], 0

    def _batch(self) -> pa.RecordBatch:
        texts, first, count = strings(self._texts), self.rows, len(self._texts)
        clean, hits = redact_events(texts, self.salt, first)
        if clean:
            texts = pa.array([clean.get(at) or text.as_py() for at, text in enumerate(texts)], pa.string())
        self.redactions += hits
        self.rows += count
        marks = set(self._mended)
        repaired = pa.array([at in marks for at in range(count)]) if marks else pa.repeat(False, count)
        ids = pa.array(range(first, first + count), pa.int64())
        return pa.RecordBatch.from_arrays([ids, texts, repaired], schema=_TEXTS)

    def _put(self, item: pa.RecordBatch | Stopped | None) -> None:
        """Waits for its turn, but not for a DuckDB that has given up."""
        while not self._stored.done():
            try:
                self._ahead.put(item, timeout=_PATIENCE_S)
            except Full:
                continue
            return
        self._stored.result()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (item := self._ahead.get()) is not None:
            if isinstance(item, Stopped):
                raise item
            yield item
