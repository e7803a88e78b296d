"""Calls over several runs: if one fails, the error says which runs were changed before."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tracewarehouse.errors import PartlyDone, TwError

Act = Callable[[], object]


def one_by_one(verb: str, acts: Iterable[tuple[str, Act]]) -> None:
    """Acts on each run in order. Raises the error of the first run, PartlyDone once a run was changed."""
    done: list[str] = []
    todo = list(acts)
    for at, (run, act) in enumerate(todo):
        try:
            act()
        except TwError as error:
            if not done:
                raise
            left = ", ".join(name for name, _ in todo[at:])
            message = f"{verb} {', '.join(done)}, but not {left}: {error.message}"
            raise PartlyDone(message, error.hint) from error
        done.append(run)
