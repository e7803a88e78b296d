"""Record batches kept until a file is read to its end: in memory, or in a temporary file if many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

import pyarrow as pa

MEMORY_BYTES: Final = 64 << 20


class Spill:
    """Keeps batches in order; their columns may differ. Close it when they are no longer needed.

    The file in `folder` is unlinked on opening and readable by its owner only; nothing of it is left when
    the process ends, however it ends.
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
        """Keeps a further batch."""
        self._bytes += batch.get_total_buffer_size()
        self._batches.append(batch)
        if self._file is None and self._bytes <= self._memory_bytes:
            return
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115  closed by close()
        for at, kept in enumerate(self._batches):
            if isinstance(kept, pa.RecordBatch):
                self._batches[at] = self._write(kept)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for kept in self._batches:
            yield kept if isinstance(kept, pa.RecordBatch) else self._read(kept)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Each batch once, in order; what was handed out is no longer kept. Closes after the last."""
        try:
            for at, kept in enumerate(self._batches):
                self._batches[at] = -1
                yield kept if isinstance(kept, pa.RecordBatch) else self._read(kept)
        finally:
            self.close()

    def close(self) -> None:
        """Forgets all batches."""
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
