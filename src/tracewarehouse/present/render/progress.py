"""Progress bars on a terminal: one per file of an ingest and one in total, or a single bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from tracewarehouse.present.render.text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

_NAME_CELLS = 32
# Approximate start and end of each stage, as a share of the work on a file.
_STAGES = {"survey": (0.0, 0.1), "read": (0.1, 0.6), "tables": (0.6, 1.0), "done": (1.0, 1.0)}


class Step(Protocol):
    """Progress of one file of an ingest: its stage, and the bytes done in it."""

    @property
    def path(self) -> Path: ...
    @property
    def stage(self) -> str: ...
    @property
    def done_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...


class Bars(Struct):
    """A total bar, and one for each file in progress."""

    progress: Progress
    total: TaskID
    files: dict[Path, TaskID] = field(default_factory=dict)
    shares: dict[Path, float] = field(default_factory=dict)

    def __call__(self, step: Step) -> None:
        """Updates the bars; the bar of a file is removed when the file is done."""
        share = min(step.done_bytes / step.total_bytes, 1.0) if step.total_bytes else 0.0
        begins, ends = _STAGES.get(step.stage, (0.0, 1.0))
        self.shares[step.path] = begins + share * (ends - begins)
        if step.stage == "done":
            if (finished := self.files.pop(step.path, None)) is not None:
                self.progress.remove_task(finished)
        else:
            if step.path not in self.files:
                self.files[step.path] = self.progress.add_task("")
            text = f"{one_line(step.path.name)[-_NAME_CELLS:]} ({step.stage})"
            size = step.total_bytes or None
            self.progress.update(
                self.files[step.path], completed=step.done_bytes, total=size, description=text
            )
        self.progress.update(self.total, completed=sum(self.shares.values()), total=len(self.shares))


def _progress(amount: ProgressColumn) -> Progress:
    """A display on stderr: text, bar, the amount done, and the remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), amount, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def bars() -> Iterator[Callable[[Step], None] | None]:
    """The progress callback of an ingest; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import TaskProgressColumn

    with _progress(TaskProgressColumn()) as progress:
        yield Bars(progress, progress.add_task("all files", total=None))


@contextmanager
def bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """A callback (done, total, current item) that moves one bar; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import MofNCompleteColumn

    with _progress(MofNCompleteColumn()) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total, item: progress.update(
            task, completed=done, total=total, description=one_line(item)[-_NAME_CELLS:]
        )
