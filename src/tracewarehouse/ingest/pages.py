"""Memory of a short ingest in pages of the usual size.

An ingest of seconds asks for much memory once and writes to little of what a huge page holds: Arrow's
allocator alone opens one for each size and thread. To fill them with zeros took a third of the processor time
of a file of 55 MB on a virtual machine, whose host finds the memory for them only then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Final

_SET_DISABLED: Final = 41  # PR_SET_THP_DISABLE
_GET_DISABLED: Final = 42  # PR_GET_THP_DISABLE
_lock: Final = Lock()
# Ingests at work in threads of this process that asked for it: the setting is the process'.
_users = 0


@contextmanager
def no_huge_pages() -> Iterator[None]:
    """The process gets no further huge pages meanwhile, where the system can be told so."""
    prctl = _prctl()
    if prctl is None or (not _users and prctl(_GET_DISABLED, 0, 0, 0, 0) != 0):
        yield
        return
    _count(prctl, 1)
    try:
        yield
    finally:
        _count(prctl, -1)


def _count(prctl: Callable[..., int], more: int) -> None:
    global _users
    with _lock:
        _users += more
        prctl(_SET_DISABLED, int(_users > 0), 0, 0, 0)


@cache
def _prctl() -> Callable[..., int] | None:
    function = getattr(ctypes.CDLL(None), "prctl", None)  # Linux only
    if function is not None:
        function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return function
