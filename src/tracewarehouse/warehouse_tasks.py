"""Tasks of a warehouse for engines: a worker opens it and selects the same versions of the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.engines import Engine, TaskProgress, advice, results_in_order
from tracewarehouse.location import Location
from tracewarehouse.query.connections import event_count
from tracewarehouse.runs.selection import SelectedRun

if TYPE_CHECKING:
    from tracewarehouse.compare.history import RecordReport

# A task opens the warehouse and hashes the files of its runs: fewer analyses would cost more than they save.
_LEAST_ANALYSES = 8


@dataclass(frozen=True)
class RecordTask:
    """Records some analyses of some runs; a second run of the task writes only what is missing.

    `opener` is the class `Warehouse`, which is above this module.
    """

    opener: Callable[..., Any]
    root: Location
    sql: Path | None
    runs: tuple[str, ...]
    analyses: tuple[str, ...]

    def run(self, progress: TaskProgress) -> RecordReport:
        """Records them in this process."""
        warehouse = self.opener(self.root, catalog=Catalog.load(self.sql))
        recorded: RecordReport = warehouse.record(self.runs, analyses=self.analyses)
        return recorded


def record_on(
    engine: Engine,
    opener: Callable[..., Any],
    root: Location,
    catalog: Catalog,
    batches: Sequence[Sequence[SelectedRun]],
    analyses: Sequence[Contract],
    missing: int,
) -> RecordReport:
    """Records runs on an engine: batches of runs, and of analyses if there are too few runs.

    `missing` is the number of results that are not recorded yet.
    """
    from tracewarehouse.compare.history import RecordReport

    per_batch = -(-2 * engine.slots // max(1, len(batches)))
    size = max(_LEAST_ANALYSES, -(-len(analyses) // per_batch))
    names = [str(each.ref) for each in analyses]
    tasks = [
        RecordTask(
            opener,
            root,
            catalog.custom_folder,
            tuple(each.selector for each in batch),
            tuple(names[at : at + size]),
        )
        for batch in batches
        for at in range(0, len(names), size)
    ]
    reports = [one for one in results_in_order(engine, tasks) if isinstance(one, RecordReport)]
    failed = tuple(one for report in reports for one in report.failed)
    runs = tuple(each.selector for batch in batches for each in batch)
    # What a lost worker had written is present when its task runs again.
    written = missing - len(failed)
    total = RecordReport(runs, tuple(names), written, len(runs) * len(names) - missing, 0, failed)
    note = advice(engine, event_count(each for batch in batches for each in batch))
    notices = (note,) if note else ()
    return replace(total, bytes=sum(report.bytes for report in reports), notices=notices)
