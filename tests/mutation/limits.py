"""Time limits for checks whose query may not end."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

MOST_CPU_S = 10


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
