"""User-facing errors: named classes with a message and a hint.

The command line prints each on one line of stderr and exits with its code.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

# Exit codes; that of an error is its `exit_code`. Those of the command line alone, such as 3 and 5 for gates,
# are beside its errors; `notebooks/guides/comparisons.md` has them all.
DONE_IN_PART, UNANSWERED = 4, 6


class TwError(Exception):
    """Base class: what failed, and what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint: str | None = None
        if hint:
            self.with_hint(hint)

    def with_hint(self, hint: str) -> None:
        """Sets the hint; tracebacks and notebooks show it below the message."""
        self.hint = hint
        self.__notes__ = [f"hint: {hint}"]


class StoreUnavailable(OSError):
    """An object store that does not answer or refuses, as a disk may: it says nothing about what is stored.

    Not a TwError, so that no reader takes it for a damaged run. `is_transient`: the same call may succeed
    later.
    """

    def __init__(self, message: str, hint: str | None = None, is_transient: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.is_transient = is_transient
        if hint:
            self.__notes__ = [f"hint: {hint}"]

    @property
    def exit_code(self) -> int:
        """6: the store does not answer, so run it again; 1: it refuses."""
        return UNANSWERED if self.is_transient else TwError.exit_code


class TraceFormatError(TwError):
    """A file that cannot be read as a trace; names the file and, if known, the byte offset."""

    def __init__(
        self, path: Path | str, message: str, *, offset: int | None = None, hint: str | None = None
    ) -> None:
        place = f"{path}" if offset is None else f"{path}: byte {offset}"
        super().__init__(f"{place}: {message}", hint)
        self.path = str(path)
        self.reason = message
        self.offset = offset


class ContractError(TwError):
    """A `.sql` file with invalid front matter, or a result that violates its contract."""


class UnknownName(TwError):
    """An unknown run, analysis, table, column or label; the hint suggests close matches."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str | None = None) -> None:
        names = sorted(set(known))
        if close := similar_names(name, names):
            hint = f"did you mean {', '.join(map(_cut, close))}?"
        elif hint is None and names:
            are_few = len(names) <= _MOST_LISTED
            examples = ", ".join(map(_cut, names if are_few else names[:_EXAMPLES]))
            hint = f"available: {examples}" if are_few else f"{len(names)} are known, such as {examples}"
        super().__init__(f"unknown {kind}: {name}", hint)
        self.kind = kind
        self.name = name


_MOST_LISTED, _EXAMPLES = 12, 4
_LONGEST_NAME = 80


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that may be meant: given in part, mistyped, or with the same first word."""
    from difflib import get_close_matches

    names = list(known)
    if len(name) > 2 and (longer := [each for each in names if name.lower() in each.lower()]):
        return get_close_matches(name, longer, n=3, cutoff=0)
    # With a lower cutoff, `nope` is close to `op_peaks`.
    if close := get_close_matches(name, names, n=3, cutoff=0.6):
        return close
    word = f"{name.partition('_')[0]}_"
    return [each for each in names if each.startswith(word)][:3]


def _cut(name: str) -> str:
    """A name that leaves room for others; kernel names have hundreds of characters."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


class ParamError(TwError):
    """A parameter with an invalid value."""


class ExpressionError(ParamError):
    """A condition, sort key, gate, metric, label or age that is not valid text: usage, so exit code 2."""

    exit_code = 2


class PolicyError(TwError):
    """A redaction policy, or rules for kernels, that cannot be read."""


class QueryError(TwError):
    """A SQL statement that DuckDB rejects, with DuckDB's message."""


class SchemaVersionError(TwError):
    """A warehouse or table of a version that this release cannot read; names both versions."""


class RunExists(TwError):
    """A rank is already stored with different content."""


class WarehouseError(TwError):
    """A folder that is not a warehouse, cannot be one, or is damaged."""


class DamagedRunError(WarehouseError):
    """A run whose newest version or files are damaged or lost; other runs are not affected."""


class MissingRanks(TwError):
    """A run that is not published because ranks are missing; `present` is the number of its ranks."""

    def __init__(self, message: str, hint: str | None, present: int) -> None:
        super().__init__(message, hint)
        self.present = present


class NoBaseline(TwError):
    """Too few recorded runs are like the one that is compared with them."""


class EngineError(TwError):
    """An engine that cannot be started or reached."""


class MissingExtra(EngineError):
    """An engine or format whose optional packages are not installed."""


class WorkerMismatch(EngineError):
    """A worker whose release, contracts or DuckDB differ from those of the process that sent the task."""


class PartlyDone(TwError):
    """A call over several runs that failed after it had changed some of them."""

    exit_code = DONE_IN_PART


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


def is_interrupt(error: BaseException) -> bool:
    """Whether the user pressed Ctrl-C; during a query, DuckDB raises a RuntimeError for it."""
    return isinstance(error, KeyboardInterrupt) or (
        type(error) is RuntimeError and str(error) == "Query interrupted"
    )
