"""The engine protocol: picklable tasks in, one result or one failure per task out.

A task may run twice, even at the same time, when a worker is lost: tasks that write commit under names that
make a second commit harmless.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import StoreUnavailable, TwError, is_interrupt

# Called by a task with the work done and the total, in any unit.
TaskProgress = Callable[[int, int], None]
# Called by an engine with the number of a task, its work done and its total.
OnProgress = Callable[[int, int, int], None]


class Task(Protocol):
    """Work for one worker. The task and its result are picklable and small."""

    def run(self, progress: TaskProgress, /) -> object: ...


class Failure(Struct, frozen=True):
    """Why a task has no result; `details` is a traceback for developers.

    `transient`: the disk, the memory or the process failed, so the same task may succeed later.
    """

    message: str
    hint: str | None = None
    details: str = ""
    transient: bool = False


class StoreFailed(Failure, frozen=True):
    """The task raised StoreUnavailable; `transient` if the store did not answer."""


class WorkerDied(Failure, frozen=True):
    """The worker process died while it ran the task."""


class Engine(Protocol):
    """Runs tasks, at most `slots` at a time. Use it as a context manager, or call `close`."""

    @property
    def name(self) -> str:
        """The name on the command line, such as `local`."""

    @property
    def slots(self) -> int:
        """How many tasks run at a time."""

    @property
    def on_this_machine(self) -> bool:
        """Whether all workers read the files of this machine."""

    def __enter__(self) -> Engine:
        """The engine itself."""

    def __exit__(self, *_: object) -> None:
        """Close the engine."""

    def run(
        self, tasks: Sequence[Task], progress: OnProgress, *, retry: bool = True
    ) -> Iterator[tuple[int, object]]:
        """Yield the number of each task with its result or Failure, once each, in order of completion.

        A task whose worker dies runs once more, alone: the memory of the other tasks may have caused it.
        Without `retry` it yields WorkerDied.
        """

    def run_alone(self, tasks: Sequence[Task], progress: OnProgress) -> Iterator[tuple[int, object]]:
        """Like `run`, one task after the other, each without any other task beside it."""

    def close(self) -> None:
        """Stop the workers that this engine started."""


def results_in_order(engine: Engine, tasks: Sequence[Task]) -> list[object]:
    """The results of all tasks, in their order. Raises the error of the first task without one.

    That is a TwError, or StoreUnavailable. With more than one slot, a worker also runs a single task.
    """
    run = engine.run_alone if len(tasks) == 1 and engine.slots > 1 else engine.run
    results = [result for _, result in sorted(run(tasks, lambda *_: None), key=lambda item: item[0])]
    for result in results:
        if isinstance(result, StoreFailed):
            raise StoreUnavailable(result.message, result.hint, result.transient)
        if isinstance(result, Failure):
            raise TwError(result.message, result.hint)
    return results


def failure_of(error: Exception) -> Failure:
    """The failure of a task that raised an error, in its handler; an interrupt is raised again."""
    cause = error.__cause__ if isinstance(error, TwError) else error
    is_transient = isinstance(cause, OSError | MemoryError)
    if isinstance(error, StoreUnavailable):
        return StoreFailed(error.message, error.hint, traceback.format_exc(), error.is_transient)
    if isinstance(error, TwError):
        return Failure(error.message, error.hint, traceback.format_exc(), is_transient)
    if is_interrupt(error):
        raise KeyboardInterrupt from error
    if isinstance(error, MemoryError):
        message, hint = "out of memory", hints.fill("retry with {}", hints.option("jobs", 1))
    else:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = hints.Hint(
            "internal error; please report it", "internal error; rerun with --debug and report it"
        )
        message = f"{type(error).__name__}: {reason}"
    return Failure(message, hint, traceback.format_exc(), is_transient)
