"""`tw demo` and `tw simulate`: simulated runs, and why one of them is slower.

The second run of the demo has three injected faults; the answers use only the traces.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Iterable
from itertools import chain, count
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

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
from tracewarehouse.present.render.text import plural
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
_LABEL = "demo"  # marks runs of the demo; its value differs between releases
_LEVELS, _KERNELS = ("breakdown", "kernels"), 3
_WIDTH = 78  # 80 without the indent


@command("tw demo", "tw demo -w /tmp/demo      # in a separate warehouse")
@output_options
def demo(session: Session, /) -> None:
    """Try tw on two simulated runs.

    They are ingested as demo-before and demo-after; other runs in the warehouse are not changed. The second
    run contains injected faults, which tw diff and tw check find.
    """
    from tracewarehouse.present.answers import change_row, change_text, findings_brief, stated
    from tracewarehouse.present.render.progress import bars

    warehouse = session.open()
    with bars() as progress:
        (before, after), is_new = _stored_runs(warehouse, session.out.notice, progress)
    session.out.notice("comparing")
    change = warehouse.diff(before, after).changes()
    findings = warehouse.check(after)
    commands = _commands(before, after, findings.rows()[0]["rank"], _warehouse_option(session.warehouse))
    what_runs = f"two simulated runs of {RANKS} ranks"
    state = f"Ingested {what_runs} into {session.warehouse}:"
    if not is_new:
        state = f"{session.warehouse} already has {what_runs}:"
    *sentences, _ = findings_brief(findings, stated(findings), "")
    blocks = [
        f"{state}\n{before} and {after}. The second one contains injected faults;\n"
        "the analyses below find them.",
        _section(f"tw diff {before} {after}", change_text(change, _LEVELS, _KERNELS, _WIDTH).splitlines()),
        _section(f"tw check {after}", chain.from_iterable(wrap(text, _WIDTH) for text in sentences)),
        _section("Try next", commands),
    ]
    row = {
        "runs": [before, after],
        "ingested": is_new,
        "diff": change_row(change),
        "findings": findings.rows(),
        "next": commands,
    }
    session.out.print_text("\n\n".join(blocks), [row])


def _stored_runs(
    warehouse: Warehouse, notify: Callable[[str], None], progress: Watch | None
) -> tuple[tuple[str, str], bool]:
    """The names of the two runs, and whether they were ingested now.

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
        names, are_stored = _run_names(Store.open_or_create(warehouse.root, tool=__version__), digest)
        if not are_stored:
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
    return names, not are_stored


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
        versions = [store.newest(name) for name in names]
        are_free = all(version is None or version.labels.get(_LABEL) == digest for version in versions)
        if are_free and pending.isdisjoint(names):
            break
    return names, all(version is not None and len(version.ranks) == RANKS for version in versions)


def _warehouse_option(warehouse: Location) -> str:
    """The option that selects the warehouse; empty if it is the default one."""
    default = os.environ.get("TW_WAREHOUSE", "warehouse")
    return "" if str(warehouse) == str(Path(default)) else f" -w {shlex.quote(str(warehouse))}"


def _commands(before: str, after: str, rank: int, option: str) -> list[str]:
    """Shell commands that show the data behind the numbers."""
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
    return "\n".join([title, *(f"  {line}".rstrip() for line in lines)])


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
    traces = write(folder, Job(noise=noise, **settings))
    files, rate = len(traces.files), traces.events / max(traces.seconds, 1e-9)
    summary = f"{plural(files, 'rank')}, {traces.events:,} events in {traces.seconds:.1f} s ({rate:,.0f}/s)"
    fact = {"folder": str(folder), "files": files, "events": traces.events, "truth": str(traces.truth)}
    session.out.print_text(f"{folder}: {summary}; expected results: {traces.truth}", [fact])
