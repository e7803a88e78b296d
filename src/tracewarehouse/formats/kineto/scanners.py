"""Which scanner reads a file: the native one where it was built, else the row-by-row one."""

from __future__ import annotations

from tracewarehouse.formats.kineto import native
from tracewarehouse.formats.kineto.row_scanner import RowScanner
from tracewarehouse.formats.kineto.scanner import Scanner


def new_scanner(*, exact: bool = False) -> Scanner:
    """A scanner at the beginning of an event array; `exact`: the row-by-row one in any case."""
    return RowScanner() if exact or not native.available() else native.NativeScanner()
