"""`tw demo` and `tw simulate`: simulated runs, and why one of them is slower.

The second run of the demo has three injected faults; the comparison uses only analyses of the traces.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse.cli.session import (
    ParsedParam,
    Session,
    command,
    no_warehouse_options,
    option_group,
    option_name,
    output_options,
)
from tracewarehouse.errors import TwError
from tracewarehouse.location import Location
from tracewarehouse.present.render.table import table
from tracewarehouse.present.render.text import plural
from tracewarehouse.result import Field
from tracewarehouse.simulation import DIALECTS, GPUS, KINDS, MODES, Injection, Job, Noise
from tracewarehouse.temp_folders import temporary_folder
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import Watch
    from tracewarehouse.storage.store import Store
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


def _compared(warehouse: Warehouse, notify: Callable[[str], None], progress: Watch | None) -> Demo:
    """Ingests two simulated runs, unless they are already stored, and compares them.

    Other runs are never changed: if one has the same name, the demo uses the next number.
    """
    from tracewarehouse.simulation import simulate as simulate_traces
    from tracewarehouse.storage.store import Store

    notify(f"simulating two runs of {RANKS} ranks")
    with temporary_folder() as folder:
        simulated = [simulate_traces(folder / f"job{number}", job).files for number, job in enumerate(jobs())]
        contents = hashlib.sha256()
        for path in chain.from_iterable(simulated):
            contents.update(path.read_bytes())
        digest = contents.hexdigest()[:12]
        names, stored = _run_names(Store.open_or_create(warehouse.root, tool=__version__), digest)
        if not stored:
            notify("ingesting")
            # All traces in one call; a run is named after its folder.
            folders = [
                traces[0].parent.rename(folder / name) for traces, name in zip(simulated, names, strict=True)
            ]
            paths = [path for run_folder in folders for path in run_folder.glob("rank*.json.gz")]
            ingested = warehouse.ingest(paths, labels={_LABEL: digest}, progress=progress)
            for file in ingested.files:
                if file.state not in ("intact", "same"):
                    raise TwError(f"rank {file.rank} of {file.run} is {file.state}: {file.reason}", file.hint)
    notify("comparing")
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
    before, after = (_overview_of(name, breakdowns[name], steps[name]) for name in names)
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


def _overview_of(
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


@command("tw demo", "tw demo -w /tmp/demo      # in a separate warehouse")
@output_options
def demo(session: Session, /) -> None:
    """Try tw on two simulated runs.

    They are ingested as demo-before and demo-after; other runs in the warehouse are not changed. The second
    run contains injected faults.
    """
    from tracewarehouse.present.render.progress import bars

    with bars() as progress:
        done = _compared(session.open(), session.out.notice, progress)
    lines = commands(done, _warehouse_option(session.warehouse))
    row = {
        "runs": [{**asdict(run), "shares": run.shares} for run in done.runs],
        "kernels": [asdict(kernel) for kernel in done.kernels],
        "stragglers": [asdict(straggler) for straggler in done.stragglers],
        "ingested": done.ingested,
        "next": lines,
    }
    session.out.print_text(text(done, str(session.warehouse), lines), [row])


def _warehouse_option(warehouse: Location) -> str:
    """The option that selects the warehouse; empty if it is the default one."""
    default = os.environ.get("TW_WAREHOUSE", "warehouse")
    return "" if str(warehouse) == str(Path(default)) else f" -w {shlex.quote(str(warehouse))}"


_WIDTH = 78  # 80 without the indent
_KERNELS = 3
_CATEGORIES = {
    "compute_ns": "compute",
    "exposed_comm_ns": "exposed comm",
    "exposed_memory_ns": "exposed mem",
    "idle_ns": "idle",
}
_MAIN_CATEGORIES = ("compute_ns", "exposed_comm_ns")


def text(done: Demo, warehouse: str, lines: Sequence[str]) -> str:
    """The complete text: the runs, their time breakdown, the differences, commands to try."""
    before, after = done.runs
    runs = f"two simulated runs of {after.ranks} ranks"
    state = f"Ingested {runs} into {warehouse}:" if done.ingested else f"{warehouse} already has {runs}:"
    sections = [
        f"{state}\n{before.run} and {after.run}. The second one contains injected faults;\n"
        "the analyses below find them.",
        _section("GPU time of all ranks", _overview(done.runs)),
        _section("Step time", _step(before, after)),
        _section("Kernels that changed most (time per step, median rank)", _kernels(done)),
        _section("Stragglers (times per step)", _stragglers(done)),
        _section("Try next", lines),
    ]
    return "\n\n".join(sections) + "\n"


def commands(done: Demo, option: str) -> list[str]:
    """Shell commands that show the data behind the numbers."""
    before, after = (run.run for run in done.runs)
    rank = done.stragglers[1].rank
    return [
        f"tw check {after}{option}",
        f"tw report {before} {after}{option}",
        f"tw show temporal_breakdown --run {after}{option}",
        f"tw show kernel_summary --run {after} --rank {rank} --limit 5{option}",
        f"tw show stragglers --run {after}{option}",
        f'tw query "SELECT kind, count(*) FROM kernels GROUP BY kind"{option}',
        f"tw list{option}",
        f"tw remove {before} {after}{option}",
    ]


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _overview(runs: Sequence[Overview]) -> list[str]:
    fields = [Field("run", "VARCHAR"), Field("steps", "BIGINT", "count"), Field("median step", "DOUBLE")]
    fields += [Field(name, "DOUBLE", "ratio") for name in _CATEGORIES.values()]
    rows = [
        (run.run, run.steps, _ms(run.step_ns), *(run.shares[name] for name in _CATEGORIES)) for run in runs
    ]
    return table(fields, rows).lines()


def _step(before: Overview, after: Overview) -> list[str]:
    old, new = before.mean_parts_ns, after.mean_parts_ns
    change = {name: new[name] - old[name] for name in new}
    other = sum(ns for name, ns in change.items() if name not in _MAIN_CATEGORIES)
    parts = [f"{_CATEGORIES[name]} {_ms(change[name], sign='+')}" for name in _MAIN_CATEGORIES]
    return [
        f"{_ms(before.step_ns)} before, {_ms(after.step_ns)} after: "
        f"{_ms(after.step_ns - before.step_ns, sign='+')} ({_percent(before.step_ns, after.step_ns):+.1f} %)",
        f"mean change: {', '.join(parts)}, other {_ms(other, sign='+')}",
    ]


def _kernels(done: Demo) -> list[str]:
    fields = [Field("kernel", "VARCHAR"), *(Field(name, "DOUBLE") for name in ("before", "after", "change"))]
    rows = [
        (each.name, _ms(each.before_ns), _ms(each.after_ns), _change(each))
        for each in done.kernels[:_KERNELS]
    ]
    return table(fields, rows, width=_WIDTH).lines()


def _change(each: KernelChange) -> str:
    if each.before_ns is None or each.after_ns is None:
        return "added" if each.before_ns is None else "removed"
    return f"{_percent(each.before_ns, each.after_ns):+.1f} %"


def _stragglers(done: Demo) -> list[str]:
    names = ("mean wait", "rank", "last at", "share of wait", "compute", "median rank")
    rows = [
        (run.run, _ms(each.waiting_ns), each.rank, f"{each.last_at} of {each.collectives}")
        + (f"{100 * each.share:.1f} %", _ms(each.compute_ns), _ms(each.median_compute_ns))
        for run, each in zip(done.runs, done.stragglers, strict=True)
    ]
    fields = [Field("run", "VARCHAR"), *(Field(name, "DOUBLE") for name in names)]
    lines = table(fields, rows).lines()
    worst = done.stragglers[1]
    if worst.share > 0.5:
        run, slower = done.runs[1].run, _percent(worst.median_compute_ns, worst.compute_ns)
        lines.append(
            f"Rank {worst.rank} is the straggler in {run}: its computation takes {slower:.1f} % longer"
        )
        lines.append("than the median rank's.")
    return lines


def _percent(before: float, after: float) -> float:
    return 100 * (after - before) / before


def _ms(ns: float | None, sign: str = "") -> str:
    """A time in ms: one unit for all rows."""
    return "-" if ns is None else f"{ns / 1e6:{sign}z.3f} ms"


_FAULTS = "\n".join(
    f"  {kind:17} {doc}" + (f" ({', '.join(values)})" if values else "")
    for kind, (doc, values) in KINDS.items()
)
_COUNTS = {
    "ranks": "Number of ranks, one GPU each.",
    "steps": "Number of profiler steps.",
    "layers": "Number of layers.",
    "hidden": "Hidden size of the model.",
    "batch": "Sequences per rank and microbatch.",
    "sequence": "Tokens per sequence.",
    "microbatches": "Microbatches per step.",
    "tensor": "Tensor-parallel ranks.",
    "pipeline": "Pipeline stages.",
    "ranks_per_node": "Ranks per node.",
    "network_gb_per_s": "Bandwidth between nodes in GB/s.",
    "launch_ns": "Host time of a kernel launch in ns.",
    "queue_limit": "Queued kernels per stream before launches block.",
    "load_us": "Time to load a batch in µs.",
    "workers": "Data loader workers; 0: the training thread.",
}
_FLAGS = {
    "sharded": "Shard weights (all-gather, reduce-scatter).",
    "experts": "Exchange tokens between experts (all-to-all).",
    "graphs": "Launch the layers as a CUDA graph.",
    "capture": "Write capture traces of the graphs too.",
    "dependent_launch": "Let kernels start before the previous one ends.",
    "counters": "Record GPU utilization counters.",
}
_NOISE = {
    "run": "Noise of the run (sigma of a lognormal).",
    "step": "Noise of each step.",
    "kernel": "Noise of each kernel.",
    "outliers": "Share of outlier steps (Student's t, 3 d.f.).",
}


_JOB = Job()
_job_options = option_group(
    *(
        click.option(option_name(name), type=int, default=getattr(_JOB, name), help=doc)
        for name, doc in _COUNTS.items()
    ),
    *(click.option(option_name(name), is_flag=True, help=doc) for name, doc in _FLAGS.items()),
    *(
        click.option(f"--noise-{name}", type=float, default=getattr(_JOB.noise, name), help=doc)
        for name, doc in _NOISE.items()
    ),
)


# Options of `tw simulate` beside the size of the job, its seed and its faults.
_RARE = (
    *("hidden", "batch", "sequence", "ranks_per_node", "network_gb_per_s", "launch_ns", "queue_limit"),
    *(
        "load_us",
        "workers",
        "capture",
        "dependent_launch",
        "counters",
        *(f"noise_{name}" for name in _NOISE),
        "link_gb_per_s",
    ),
    *("dialect", "stacks", "memory", "inputs", "syncs", "start", "microbatches", "sharded", "experts"),
)


@command(
    "tw simulate sim --ranks 8 --tensor 2 --seed 7",
    "tw simulate slow --ranks 8 --inject slow-rank:rank=3,what=host,factor=2",
    "tw simulate serve --mode inference --graphs --ranks 2 --tensor 2 --steps 20",
    rare=_RARE,
    notes="Faults to inject as KIND[:KEY=VALUE,…] (most also accept rank and step, zero-based):\n" + _FAULTS,
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@_job_options
@click.option("--link-gb-per-s", type=int, help="Bandwidth within a node in GB/s. [default: GPU model]")
@click.option("--mode", type=click.Choice(MODES), default="training", help="Kind of job.")
@click.option("--gpu", type=click.Choice(tuple(GPUS)), default="H100", help="GPU model.")
@click.option("--dialect", type=click.Choice(DIALECTS), default="new", help="Trace format.")
@click.option("--stacks/--no-stacks", default=True, help="Record Python stacks.")
@click.option("--memory/--no-memory", default=True, help="Record memory allocations.")
@click.option("--inputs/--no-inputs", default=True, help="Record inputs of backward operators.")
@click.option("--syncs/--no-syncs", default=True, help="Record synchronization events.")
@click.option("--seed", type=int, default=0, help="Random seed; output is reproducible.")
@click.option("--start", default=_JOB.start, help="Start time, UTC.")
@click.option(
    "--inject",
    "injections",
    type=ParsedParam("FAULT", Injection.parse),
    multiple=True,
    help="Inject a fault; --help-all lists them (repeatable).",
)
@no_warehouse_options
def simulate(session: Session, /, folder: Path, **settings: Any) -> None:
    """Generate traces of a simulated distributed job.

    FOLDER gets one trace file per rank in PyTorch's format, and truth.json with the expected results of
    analyses, and what injected faults cost per step.
    """
    from tracewarehouse.simulation import simulate as write

    noise = Noise(**{name: settings.pop(f"noise_{name}") for name in _NOISE})
    done = write(folder, Job(noise=noise, **settings))
    rate = done.events / max(done.seconds, 1e-9)
    summary = (
        f"{plural(len(done.files), 'rank')}, {done.events:,} events in {done.seconds:.1f} s ({rate:,.0f}/s)"
    )
    fact = {"folder": str(folder), "files": len(done.files), "events": done.events, "truth": str(done.truth)}
    session.out.print_text(f"{folder}: {summary}; expected results: {done.truth}", [fact])
