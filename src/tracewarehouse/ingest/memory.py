"""Memory of a large file: its columns go to a file, and freed memory back to the system between phases."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.ingest.columns import Columns

# Columns of a larger text go to a file; a compressed one is mostly smaller than it is taken for.
IN_MEMORY_BYTES: Final = 96 << 20


def is_large(text_bytes: int) -> bool:
    """Whether a source is built with little memory, and not with little time."""
    return text_bytes > IN_MEMORY_BYTES


def held(
    name: str, reader: pa.RecordBatchReader, text_bytes: int, spill: Path, opened: ExitStack
) -> Columns | pa.Table:
    """A table of a source; activities as columns, of a large source in a file until `opened` is closed."""
    from tracewarehouse.formats.base import ACTIVITIES
    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.spilled import SpilledColumns

    if name != ACTIVITIES:
        return reader.read_all()
    if not is_large(text_bytes):
        return Columns.read(reader)
    columns = opened.enter_context(closing(SpilledColumns.spill(reader, spill)))
    give_back()
    return columns


@contextmanager
def frugal() -> Iterator[None]:
    """Arrow allocates from the system meanwhile: its own allocators keep what they have had."""
    import pyarrow as pa

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        give_back()


def give_back() -> None:
    """Returns freed memory to the system, where the C library can."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    return found
