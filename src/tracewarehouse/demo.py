"""A first look without any trace: two simulated runs in a warehouse, and what differs between them.

The second run has three things planted; what is told about them comes from the analyses alone.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median_low
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tracewarehouse.errors import TwError
from tracewarehouse.simulation import Injection, Job, simulate
from tracewarehouse.storage import Store
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import Watch
    from tracewarehouse.warehouse import Warehouse

RANKS = 8
STEPS = 6
PLANTED = ("slow-kernel:kernel=gemm,percent=15", "extra-kernel:us=80", "slow-rank:rank=5,factor=1.25")
PARTS = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
_LABEL = "demo"  # on our runs only: its value tells these traces from those of another release


@dataclass(frozen=True)
class Overview:
    """A run: its steps, their median over all ranks, and the parts of all device windows, which add up."""

    run: str
    ranks: int
    steps: int
    step_ns: int
    window_ns: int
    parts_ns: Mapping[str, int]

    @property
    def shares(self) -> dict[str, float]:
        """Each part over the windows."""
        return {part: ns / self.window_ns for part, ns in self.parts_ns.items()}

    @property
    def mean_parts_ns(self) -> dict[str, float]:
        """Each part per step, the mean of all ranks."""
        return {part: ns / (self.ranks * self.steps) for part, ns in self.parts_ns.items()}


@dataclass(frozen=True)
class KernelChange:
    """Time of a kernel per step, on the median rank of either run; None where the run has no such kernel."""

    name: str
    before_ns: float | None
    after_ns: float | None

    @property
    def change_ns(self) -> float:
        """How much longer it takes."""
        return (self.after_ns or 0) - (self.before_ns or 0)


@dataclass(frozen=True)
class Straggler:
    """The rank of a run that the others wait for most at collectives.

    `waiting_ns` is what a rank waits per step, the mean of all; `share` how much of it this rank causes;
    `last_at` at how many of its collectives it came last. Computation is per step, beside the median rank.
    """

    rank: int
    waiting_ns: float
    share: float
    last_at: int
    collectives: int
    compute_ns: float
    median_compute_ns: float


@dataclass(frozen=True)
class Demo:
    """Both runs, before and after; what differs: kernels by how much they changed, and who is waited for."""

    runs: tuple[Overview, Overview]
    kernels: tuple[KernelChange, ...]
    stragglers: tuple[Straggler, Straggler]
    taken_in: bool


def demo(
    warehouse: Warehouse, *, say: Callable[[str], None] | None = None, progress: Watch | None = None
) -> Demo:
    """Puts two simulated runs into a warehouse, unless they are there, and compares them.

    A run of another making is never touched: where it has the name, ours take the next one.
    """
    tell = say or (lambda _: None)
    tell(f"simulating two runs of {RANKS} ranks")
    with TemporaryDirectory(prefix="tw-demo-") as folder:
        files = _write(Path(folder))
        made = _made(files)
        names, there = _names(Store.create(warehouse.root, tool=__version__), made)
        if not there:
            tell("taking them into the warehouse")
            _take_in(warehouse, files, names, made, progress)
    tell("asking what differs")
    return _compare(warehouse.select(runs=names), names, taken_in=not there)


def jobs() -> tuple[Job, Job]:
    """What is simulated: a job, and the same an hour later with something planted."""
    before = Job(ranks=RANKS, steps=STEPS, seed=1, start="2026-05-04T09:00:00")
    planted = tuple(map(Injection.parse, PLANTED))
    return before, Job(ranks=RANKS, steps=STEPS, seed=2, start="2026-05-04T10:00:00", injections=planted)


def _write(folder: Path) -> tuple[Sequence[Path], Sequence[Path]]:
    before, after = jobs()
    return simulate(folder / "before", before).files, simulate(folder / "after", after).files


def _made(files: Iterable[Sequence[Path]]) -> str:
    """What tells these traces from any others."""
    digest = hashlib.sha256()
    for path in (path for part in files for path in part):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _names(store: Store, made: str) -> tuple[tuple[str, str], bool]:
    """Names that are free or hold just these traces, and whether both hold all of them."""
    waiting = {run.casefold() for run in store.waiting_runs()}
    for number in count(1):
        end = f"-{number}" if number > 1 else ""
        names = (f"demo-before{end}", f"demo-after{end}")
        stored = [store.newest(name) for name in names]
        free = all(each is None or each.labels.get(_LABEL) == made for each in stored)
        if free and waiting.isdisjoint(names):
            break
    return names, all(each is not None and len(each.ranks) == RANKS for each in stored)


def _take_in(
    warehouse: Warehouse,
    files: Sequence[Sequence[Path]],
    names: Sequence[str],
    made: str,
    progress: Watch | None,
) -> None:
    """Takes the traces in with one call; a run is named after its folder."""
    paths = []
    for part, name in zip(files, names, strict=True):
        folder = part[0].parent.rename(part[0].parent.with_name(name))
        paths += [folder / path.name for path in part]
    report = warehouse.ingest(*paths, labels={_LABEL: made}, progress=progress)
    for file in report.files:
        if file.state not in ("intact", "same"):
            raise TwError(f"rank {file.rank} of {file.run} is {file.state}: {file.reason}", file.hint)


def _compare(selected: Warehouse, names: tuple[str, str], *, taken_in: bool) -> Demo:
    split, steps = _by_run(selected.temporal_breakdown().rows()), _by_run(selected.step_summary().rows())
    kernels, waits = _by_run(selected.kernel_summary().rows()), _by_run(selected.stragglers().rows())
    before, after = (_overview(name, split[name], steps[name]) for name in names)
    first, second = (_straggler(run, waits[run.run], split[run.run]) for run in (before, after))
    return Demo(
        (before, after),
        _changes(*(_kernel_times(kernels[run.run], run) for run in (before, after))),
        (first, second),
        taken_in,
    )


def _by_run(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[row["run_id"]].append(row)
    return found


def _overview(run: str, split: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]) -> Overview:
    """A step that the profiler may have cut counts among the steps, not in their median."""
    return Overview(
        run,
        len({row["rank"] for row in split}),
        len({row["step"] for row in steps}),
        median_low(row["period_ns"] for row in steps if not row["partial"]),
        sum(row["window_ns"] for row in split),
        {part: sum(row[part] for row in split) for part in PARTS},
    )


def _kernel_times(rows: Iterable[Mapping[str, Any]], run: Overview) -> dict[str, float]:
    """Name → time per step on the median rank; communication is left out, for it holds waiting."""
    sums: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["kind"] != "communication":
            sums[row["name"]].append(row["sum_ns"])
    return {name: median_low(each + [0] * (run.ranks - len(each))) / run.steps for name, each in sums.items()}


def _changes(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[KernelChange, ...]:
    found = [KernelChange(name, before.get(name), after.get(name)) for name in {**before, **after}]
    return tuple(sorted(found, key=lambda each: (-abs(each.change_ns), each.name)))


def _straggler(
    run: Overview, waits: Sequence[Mapping[str, Any]], split: Sequence[Mapping[str, Any]]
) -> Straggler:
    worst = max(waits, key=lambda row: (row["caused_wait_ns"], -row["rank"]))
    compute = {row["rank"]: row["compute_ns"] for row in split}
    return Straggler(
        worst["rank"],
        sum(row["waiting_ns"] for row in waits) / (run.ranks * run.steps),
        worst["share"],
        worst["arrived_last"],
        worst["collectives"],
        compute[worst["rank"]] / run.steps,
        median_low(compute.values()) / run.steps,
    )
