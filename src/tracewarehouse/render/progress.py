"""Progress of an ingest on a terminal: a bar per file being read and one for all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tracewarehouse.render.text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_NAME_CELLS = 32
# Where in the work on a file each stage begins and ends, roughly.
_PARTS = {"survey": (0.0, 0.1), "read": (0.1, 0.6), "tables": (0.6, 1.0), "done": (1.0, 1.0)}


class Step(Protocol):
    """What is told while files are taken in: the bytes done of a file in the stage it is in."""

    @property
    def path(self) -> Path: ...
    @property
    def stage(self) -> str: ...
    @property
    def done_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...


@dataclass
class Bars:
    """A bar for each file in work, under one for all of them."""

    progress: Progress
    whole: TaskID
    files: dict[Path, TaskID] = field(default_factory=dict)
    shares: dict[Path, float] = field(default_factory=dict)

    def __call__(self, step: Step) -> None:
        """Moves the bars; a file's bar goes away when the file is done."""
        share = min(step.done_bytes / step.total_bytes, 1.0) if step.total_bytes else 0.0
        begins, ends = _PARTS.get(step.stage, (0.0, 1.0))
        self.shares[step.path] = begins + share * (ends - begins)
        if step.stage == "done":
            if (finished := self.files.pop(step.path, None)) is not None:
                self.progress.remove_task(finished)
        else:
            self._move(step)
        self.progress.update(self.whole, completed=sum(self.shares.values()), total=len(self.shares))

    def _move(self, step: Step) -> None:
        if step.path not in self.files:
            self.files[step.path] = self.progress.add_task("")
        told = f"{one_line(step.path.name)[-_NAME_CELLS:]} ({step.stage})"
        task = self.files[step.path]
        self.progress.update(
            task, completed=step.done_bytes, total=step.total_bytes or None, description=told
        )


@contextmanager
def bars() -> Iterator[Callable[[Step], None] | None]:
    """The callback to hand to an ingest; None where stderr is no terminal, for a pipe wants no bars."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bars(progress, progress.add_task("all files", total=None))


@contextmanager
def bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """One bar to move by (done, of how many, what is in work); None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total, what: progress.update(
            task, completed=done, total=total, description=one_line(what)[-_NAME_CELLS:]
        )
