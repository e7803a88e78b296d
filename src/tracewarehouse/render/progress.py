"""Progress of an ingest on a terminal: a bar per file being read and one for all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol

from tracewarehouse.render.text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_NAME_CELLS = 32


class Step(Protocol):
    """What is told while files are taken in: bytes done of a file, and what is being done to it."""

    @property
    def file(self) -> PurePath | str: ...
    @property
    def done_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def stage(self) -> str: ...


@dataclass
class Bars:
    """The bars of the files in work, under one for the whole."""

    progress: Progress
    whole: TaskID
    files: dict[str, TaskID] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)

    def __call__(self, step: Step) -> None:
        """Moves the bars; a file's bar goes away when the file is done."""
        name = str(step.file)
        self.done[name], self.total[name] = step.done_bytes, step.total_bytes
        if step.stage == "done":
            self.done[name] = step.total_bytes
            if (finished := self.files.pop(name, None)) is not None:
                self.progress.remove_task(finished)
        else:
            self._move(name, step)
        self.progress.update(self.whole, completed=sum(self.done.values()), total=sum(self.total.values()))

    def _move(self, name: str, step: Step) -> None:
        if name not in self.files:
            self.files[name] = self.progress.add_task("", total=step.total_bytes)
        told = f"{one_line(PurePath(name).name)[-_NAME_CELLS:]} {step.stage}"
        self.progress.update(self.files[name], completed=step.done_bytes, description=told)


@contextmanager
def bars() -> Iterator[Callable[[Step], None] | None]:
    """The callback to hand to an ingest; None where stderr is no terminal, for a pipe wants no bars."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bars(progress, progress.add_task("all files", total=None))
