"""The errors a user can meet: one class each, a message and a hint.

The command line turns each into one line on stderr and an exit code; nothing else catches them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class TwError(Exception):
    """What went wrong, and what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint: str | None = None
        if hint:
            self.with_hint(hint)

    def with_hint(self, hint: str) -> None:
        """Says what to do about it; tracebacks and notebooks show it below the message."""
        self.hint = hint
        self.__notes__ = [f"hint: {hint}"]


class TraceFormatError(TwError):
    """A file that cannot be read as a trace; names the file and, where known, the byte."""

    def __init__(
        self, path: Path | str, message: str, *, offset: int | None = None, hint: str | None = None
    ) -> None:
        place = f"{path}" if offset is None else f"{path}: byte {offset}"
        super().__init__(f"{place}: {message}", hint)
        self.path = str(path)
        self.reason = message
        self.offset = offset


class ContractError(TwError):
    """A `.sql` file that breaks the grammar, or a result that breaks its contract."""


class UnknownName(TwError):
    """A run, analysis, table, column or label that is not there; the hint lists close ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str | None = None) -> None:
        from difflib import get_close_matches

        names = sorted(set(known))
        close = get_close_matches(name, names, n=3, cutoff=0.5)
        if close:
            hint = f"did you mean {', '.join(close)}?"
        elif hint is None and names:
            shown = ", ".join(names[:8])
            hint = f"there are: {shown}" + (", …" if len(names) > 8 else "")
        super().__init__(f"unknown {kind}: {name}", hint)
        self.kind = kind
        self.name = name


class ParamError(TwError):
    """A parameter with a value its contract does not allow."""


class QueryError(TwError):
    """A statement that DuckDB refuses; the message and hint are its own."""


class SchemaVersionError(TwError):
    """A warehouse or table of a version this release cannot use; names both versions."""


class RunExists(TwError):
    """A rank is already stored with other content."""


class WarehouseError(TwError):
    """A folder that is no warehouse, cannot hold one, or is damaged."""


def is_interrupt(error: BaseException) -> bool:
    """Whether somebody pressed Ctrl-C: in the middle of a query, DuckDB makes a RuntimeError of that."""
    return isinstance(error, KeyboardInterrupt) or (
        type(error) is RuntimeError and str(error) == "Query interrupted"
    )
