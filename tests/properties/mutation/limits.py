"""Time limits for checks whose query may not end."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MOST_CPU_S = 10
# DuckDB cannot interrupt every query: after this time, the process is ended.
MOST_S = 90


class TooLong(Exception):
    """A check took more CPU time than any valid check."""


def fails(check: Callable[[], object]) -> bool:
    """Whether it raises, or does not end in time; called in the main thread."""
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        check()
    except (Exception, pytest.fail.Exception):
        return True
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return False


def _stop(*_: object) -> None:
    raise TooLong


@contextmanager
def watched(stopped: Path) -> Iterator[None]:
    """Ends the process if the block does not end in time; a stack is then written to the file."""
    with stopped.open("w") as file:
        faulthandler.dump_traceback_later(MOST_S, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
