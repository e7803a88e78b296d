"""A buffer for record batches until a file is read to its end: in memory, or in a temporary file if large."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

import pyarrow as pa

MEMORY_BYTES: Final = 64 << 20


class Spill:
    """Buffers batches in order; their columns may differ. Close it when they are no longer needed.

    The file in `folder` is unlinked when opened and readable by its owner only. It disappears when the
    process ends, even if the process is killed.
    """

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._file: IO[bytes] | None = None
        self._batches: list[pa.RecordBatch | int] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends a batch."""
        self._bytes += batch.get_total_buffer_size()
        self._batches.append(batch)
        if self._file is None and self._bytes <= self._memory_bytes:
            return
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115  closed by close()
        for at, batch in enumerate(self._batches):
            if isinstance(batch, pa.RecordBatch):
                self._batches[at] = self._write(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            yield batch if isinstance(batch, pa.RecordBatch) else self._read(batch)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yields each batch once, in order, and releases it. Closes after the last batch."""
        try:
            for at, batch in enumerate(self._batches):
                self._batches[at] = -1
                yield batch if isinstance(batch, pa.RecordBatch) else self._read(batch)
        finally:
            self.close()

    def close(self) -> None:
        """Discards all batches."""
        self._batches.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, batch: pa.RecordBatch) -> int:
        assert self._file is not None
        place = self._file.seek(0, os.SEEK_END)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(self._file, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        return place

    def _read(self, place: int) -> pa.RecordBatch:
        assert self._file is not None
        self._file.seek(place)
        return pa.ipc.open_stream(self._file).read_next_batch()
