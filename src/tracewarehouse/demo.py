"""The demo: two simulated runs in a warehouse, and a comparison of them.

The second run has three injected faults; the comparison uses only analyses of the traces.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracewarehouse.errors import TwError
from tracewarehouse.simulation import Injection, Job, simulate
from tracewarehouse.storage.store import Store
from tracewarehouse.temp_folders import temporary_folder
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import Watch
    from tracewarehouse.warehouse import Warehouse

RANKS = 8
STEPS = 6
INJECTED = ("slow-kernel:kernel=gemm,percent=15", "extra-kernel:us=80", "slow-rank:rank=5,factor=1.25")
PARTS = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
_LABEL = "demo"  # marks runs of the demo; its value differs between releases


class Overview(Struct, frozen=True):
    """A run: its steps, the median step over all ranks, and a breakdown of all device windows."""

    run: str
    ranks: int
    steps: int
    step_ns: int
    window_ns: int
    parts_ns: Mapping[str, int]

    @property
    def shares(self) -> dict[str, float]:
        """Each category as a share of the windows."""
        return {part: ns / self.window_ns for part, ns in self.parts_ns.items()}

    @property
    def mean_parts_ns(self) -> dict[str, float]:
        """Each category per step, mean over all ranks."""
        return {part: ns / (self.ranks * self.steps) for part, ns in self.parts_ns.items()}


class KernelChange(Struct, frozen=True):
    """Time of a kernel per step, on the median rank of each run; None if the run lacks the kernel."""

    name: str
    before_ns: float | None
    after_ns: float | None

    @property
    def change_ns(self) -> float:
        """Time after minus time before."""
        return (self.after_ns or 0) - (self.before_ns or 0)


class Straggler(Struct, frozen=True):
    """The rank of a run that the others wait for most at collectives.

    `waiting_ns`: wait per step, mean over all ranks; `share`: the share of it that this rank causes;
    `last_at`: the number of collectives at which it arrived last. Computation times are per step.
    """

    rank: int
    waiting_ns: float
    share: float
    last_at: int
    collectives: int
    compute_ns: float
    median_compute_ns: float


class Demo(Struct, frozen=True):
    """The comparison: both runs, kernels by absolute change, and the straggler of each run."""

    runs: tuple[Overview, Overview]
    kernels: tuple[KernelChange, ...]
    stragglers: tuple[Straggler, Straggler]
    ingested: bool


def demo(
    warehouse: Warehouse, *, notify: Callable[[str], None] | None = None, progress: Watch | None = None
) -> Demo:
    """Ingests two simulated runs, unless they are already stored, and compares them.

    Other runs are never changed: if one has the same name, the demo uses the next number.
    """
    report = notify or (lambda _: None)
    report(f"simulating two runs of {RANKS} ranks")
    with temporary_folder() as folder:
        before, after = jobs()
        files = [simulate(folder / name, job).files for name, job in (("before", before), ("after", after))]
        contents = hashlib.sha256()
        for path in (path for paths in files for path in paths):
            contents.update(path.read_bytes())
        digest = contents.hexdigest()[:12]
        names, stored = _run_names(Store.open_or_create(warehouse.root, tool=__version__), digest)
        if not stored:
            report("ingesting")
            # All traces in one call; a run is named after its folder.
            paths: list[Path] = []
            for run_files, name in zip(files, names, strict=True):
                run_folder = run_files[0].parent.rename(run_files[0].parent.with_name(name))
                paths += [run_folder / path.name for path in run_files]
            ingested = warehouse.ingest(*paths, labels={_LABEL: digest}, progress=progress)
            for file in ingested.files:
                if file.state not in ("intact", "same"):
                    raise TwError(f"rank {file.rank} of {file.run} is {file.state}: {file.reason}", file.hint)
    report("comparing")
    return _compare(warehouse.select(runs=names), names, ingested=not stored)


def jobs() -> tuple[Job, Job]:
    """The simulated jobs: one, and the same an hour later with injected faults."""
    before = Job(ranks=RANKS, steps=STEPS, seed=1, start="2026-05-04T09:00:00")
    injections = tuple(map(Injection.parse, INJECTED))
    return before, Job(ranks=RANKS, steps=STEPS, seed=2, start="2026-05-04T10:00:00", injections=injections)


def _run_names(store: Store, digest: str) -> tuple[tuple[str, str], bool]:
    """Run names that are free or have exactly these traces, and whether both runs are complete."""
    pending = {run.casefold() for run in store.pending_runs()}
    for number in count(1):
        suffix = f"-{number}" if number > 1 else ""
        names = (f"demo-before{suffix}", f"demo-after{suffix}")
        stored = [store.newest(name) for name in names]
        are_free = all(each is None or each.labels.get(_LABEL) == digest for each in stored)
        if are_free and pending.isdisjoint(names):
            break
    return names, all(each is not None and len(each.ranks) == RANKS for each in stored)


def _compare(selected: Warehouse, names: tuple[str, str], *, ingested: bool) -> Demo:
    breakdowns, steps = _by_run(selected.temporal_breakdown().rows()), _by_run(selected.step_summary().rows())
    kernels, waits = _by_run(selected.kernel_summary().rows()), _by_run(selected.stragglers().rows())
    before, after = (_overview(name, breakdowns[name], steps[name]) for name in names)
    earlier, later = (_kernel_times(kernels[run.run], run) for run in (before, after))
    changes = [KernelChange(name, earlier.get(name), later.get(name)) for name in {**earlier, **later}]
    first, second = (_straggler(run, waits[run.run], breakdowns[run.run]) for run in (before, after))
    return Demo(
        (before, after),
        tuple(sorted(changes, key=lambda each: (-abs(each.change_ns), each.name))),
        (first, second),
        ingested,
    )


def _by_run(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    by_run = defaultdict(list)
    for row in rows:
        by_run[row["run_id"]].append(row)
    return by_run


def _overview(
    run: str, breakdown: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]
) -> Overview:
    """Partial steps are counted, but not used for the median."""
    return Overview(
        run,
        len({row["rank"] for row in breakdown}),
        len({row["step"] for row in steps}),
        median_low(row["period_ns"] for row in steps if not row["partial"]),
        sum(row["window_ns"] for row in breakdown),
        {part: sum(row[part] for row in breakdown) for part in PARTS},
    )


def _kernel_times(rows: Iterable[Mapping[str, Any]], run: Overview) -> dict[str, float]:
    """Name → time per step on the median rank; without communication, which includes waiting."""
    sums: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["kind"] != "communication":
            sums[row["name"]].append(row["sum_ns"])
    return {name: median_low(each + [0] * (run.ranks - len(each))) / run.steps for name, each in sums.items()}


def _straggler(
    run: Overview, waits: Sequence[Mapping[str, Any]], breakdown: Sequence[Mapping[str, Any]]
) -> Straggler:
    worst = max(waits, key=lambda row: (row["caused_wait_ns"], -row["rank"]))
    compute = {row["rank"]: row["compute_ns"] for row in breakdown}
    return Straggler(
        worst["rank"],
        sum(row["waiting_ns"] for row in waits) / (run.ranks * run.steps),
        worst["share"],
        worst["arrived_last"],
        worst["collectives"],
        compute[worst["rank"]] / run.steps,
        median_low(compute.values()) / run.steps,
    )
