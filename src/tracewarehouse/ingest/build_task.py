"""The task of a worker process: one large source, or several small ones of one run."""

from __future__ import annotations

import pickle
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from shutil import rmtree
from typing import Final

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import TaskProgress
from tracewarehouse.ingest.build_rank import STAGED, Settings, SourceGroup
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.ingest.plan import Item, Report
from tracewarehouse.ingest.resources import is_large, no_huge_pages
from tracewarehouse.storage import RankSource, Staged, Store, disk_error

# Tables of less text than this are written faster than a thread starts.
_MIN_THREAD_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class BuildRanks:
    """Reads the items, builds the tables of those with a target, and commits them as one group.

    `folder` for uncommitted files is relative to that of the warehouse on the machine of the worker.
    """

    items: tuple[Item, ...]
    folder: PurePath
    settings: Settings

    def run(self, progress: TaskProgress) -> tuple[Report, ...]:
        """Returns a report per item. `progress(position, bytes)` reports how much text of an item is read."""
        store, catalog = self.settings.store, Catalog.load(self.settings.sql)
        folder = store.folder / self.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            largest_bytes = max((item.text_bytes for item in self.items), default=0)
            single = len(self.items) == 1 and largest_bytes >= _MIN_THREAD_BYTES
            with (
                self._pages(),
                ExitStack() as opened,
                RankFiles(catalog, folder, single, is_large(largest_bytes)) as files,
            ):
                group = SourceGroup(self.settings, folder, store, catalog, files, opened)
                for position, item in enumerate(self.items):
                    group.add(item, partial(progress, position))
                return group.finish()
        except OSError as error:
            raise disk_error(folder, error) from error
        finally:
            if not self.settings.stage_only:  # the driver may be on another machine
                rmtree(folder, ignore_errors=True)

    def _pages(self) -> AbstractContextManager[None]:
        # A large file reuses the same memory for long and benefits from huge pages.
        is_short = not any(is_large(item.text_bytes) for item in self.items)
        return no_huge_pages() if is_short else nullcontext()

    def one_by_one(self) -> list[BuildRanks]:
        """One task per item."""
        folders = (
            self.folder.with_name(f"{self.folder.name}-{position}") for position in range(len(self.items))
        )
        return [
            BuildRanks((one,), folder, self.settings) for one, folder in zip(self.items, folders, strict=True)
        ]


def staged_in(folder: Path) -> list[Staged]:
    """What a task only staged."""
    found: list[Staged] = pickle.loads((folder / STAGED).read_bytes())
    return found


def commit_staged(store: Store, folder: Path) -> tuple[RankSource, ...]:
    """Commits what a task only staged."""
    return store.commit(staged_in(folder))
