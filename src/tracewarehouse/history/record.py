"""`tw record`: results of analyses, worked out once and kept for a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import TwError
from tracewarehouse.history.recorded import Asking
from tracewarehouse.metric import Ranks
from tracewarehouse.metric.measure import COMPLETE, ranks_with_data
from tracewarehouse.runs.capabilities import able
from tracewarehouse.runs.notices import notices
from tracewarehouse.runs.selection import SelectedRun, Selection
from tracewarehouse.storage import Json, Recorded, Store, write_result

# Runs are asked together: opening a session costs more than a small analysis. Their rows must fit in memory.
_RUNS_AT_ONCE = 32
_BYTES_AT_ONCE = 64 << 20

Steps = Mapping[int, Sequence[int]]  # rank → its complete steps


@dataclass(frozen=True)
class Failed:
    """A result that could not be worked out."""

    run: str
    analysis: str
    reason: str


@dataclass(frozen=True)
class RecordReport:
    """What a recording did: `written` results in `bytes`, `present` were there before, and what failed."""

    runs: tuple[str, ...]
    analyses: tuple[str, ...]
    written: int
    present: int
    bytes: int
    failed: tuple[Failed, ...] = ()


@dataclass(frozen=True)
class Step:
    """How far a recording is: results done and all, and the analysis in work."""

    done: int
    total: int
    analysis: str


Watch = Callable[[Step], None]
Narrow = Callable[[Sequence[SelectedRun]], Selection]


def record(
    store: Store,
    catalog: Catalog,
    selected: Sequence[SelectedRun],
    analyses: Sequence[Contract],
    narrow: Narrow,
    watch: Watch | None = None,
) -> RecordReport:
    """Works out what is not recorded yet of the chosen runs, whole, and keeps it.

    What is written stays, however the rest goes; a run that fails stops no other.
    """
    work = _Work(store, [Asking.of(contract, catalog) for contract in analyses], narrow, watch, selected)
    for group in _groups(selected):
        work.group(group)
    return RecordReport(
        tuple(each.selector for each in selected),
        tuple(str(contract.ref) for contract in analyses),
        work.written,
        len(analyses) * len(selected) - work.lacking,
        work.bytes,
        tuple(work.failed),
    )


def _groups(selected: Sequence[SelectedRun]) -> Iterator[list[SelectedRun]]:
    """Runs to be asked together."""
    group: list[SelectedRun] = []
    held = 0
    for each in selected:
        size = each.version.bytes
        if group and (len(group) == _RUNS_AT_ONCE or held + size > _BYTES_AT_ONCE):
            yield group
            group, held = [], 0
        group.append(each)
        held += size
    if group:
        yield group


class _Work:
    """A recording under way."""

    def __init__(
        self,
        store: Store,
        asked: Sequence[Asking],
        narrow: Narrow,
        watch: Watch | None,
        selected: Sequence[SelectedRun],
    ) -> None:
        self.store, self.asked, self.narrow, self.watch = store, asked, narrow, watch
        refs = [asking.contract.ref for asking in asked]
        self.present = {ref: store.recorded(ref.name, ref.version).keys() for ref in refs}
        self.lacking = sum(len(self.without(asking, selected)) for asking in asked)
        self.written = self.bytes = 0
        self.failed: list[Failed] = []

    def without(self, asking: Asking, selected: Sequence[SelectedRun]) -> list[SelectedRun]:
        """The runs that lack the result."""
        present = self.present[asking.contract.ref]
        return [each for each in selected if present.isdisjoint(asking.ways(each.version))]

    def group(self, group: Sequence[SelectedRun]) -> None:
        """Some runs, analysis by analysis."""
        wanted = [(asking, runs) for asking in self.asked if (runs := self.without(asking, group))]
        if not wanted:
            return
        steps = _complete_steps(self.narrow(group))
        for asking, runs in wanted:
            if self.watch is not None:
                done = self.written + len(self.failed)
                self.watch(Step(done, self.lacking, asking.contract.name))
            if asking.steps_optional:
                self.together(asking, [each for each in runs if each.run in steps], steps)
                runs = [each for each in runs if each.run not in steps]
            self.together(asking, runs, steps)

    def together(self, asking: Asking, runs: Sequence[SelectedRun], steps: Mapping[str, Steps]) -> None:
        """Asks for several runs at once; where that fails, for each alone."""
        if not runs:
            return
        try:
            self.keep(asking, runs, steps)
        except TwError as error:
            if len(runs) == 1:
                self.failed.append(Failed(runs[0].selector, str(asking.contract.ref), error.message))
                return
            for each in runs:
                self.together(asking, [each], steps)

    def keep(self, asking: Asking, runs: Sequence[SelectedRun], steps: Mapping[str, Steps]) -> None:
        """Works out a result for each run, all of which have complete steps or none, and takes it in."""
        contract, by_step = asking.contract, runs[0].run in steps
        result = self.narrow(runs).run(contract.name, contract.version, **asking.params(by_step))
        ranks = ranks_with_data(result, runs)
        files: dict[Recorded, Path] = {}
        with self.store.staging() as folder:
            for at, each in enumerate(runs):
                notes = notices(able(contract, [each]).selected, contract)
                alone = result.of_run(each.run, each.selector, notes)
                path = folder / f"{at}.parquet"
                recorded = asking.recorded(each.version, each.run in steps)
                told = _told(
                    each, ranks[each.run], steps.get(each.run, {}) if "step" in contract.grain else {}
                )
                write_result(path, recorded, alone.table, alone.parquet_schema().metadata, told)
                files[recorded] = path
            size = sum(path.stat().st_size for path in files.values())
            self.store.keep_results(files)
        self.written, self.bytes = self.written + len(files), self.bytes + size


def _complete_steps(side: Selection) -> dict[str, Steps]:
    """Run → rank → complete steps, for the runs that have some."""
    found: dict[str, dict[int, list[int]]] = {}
    for row in side.query(COMPLETE).rows():
        found.setdefault(row["run_id"], {}).setdefault(row["rank"], []).append(row["step"])
    return dict(found)


def _told(each: SelectedRun, ranks: Ranks, steps: Steps) -> dict[str, Json]:
    """What a history needs to know beside the rows."""
    return {
        "run_id": each.run,
        "number": each.version.number,
        "ranks": list(ranks.with_data),
        "reason": ranks.reason,
        "complete": {str(rank): list(numbers) for rank, numbers in sorted(steps.items())},
    }
