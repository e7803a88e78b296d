"""Memory of a large file: given back to the system between the phases of its ingest."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

# Columns of a larger text go to a file; a compressed one is mostly smaller than it is taken for.
IN_MEMORY_BYTES: Final = 96 << 20


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
