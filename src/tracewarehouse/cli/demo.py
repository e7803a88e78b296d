"""`tw demo` and `tw simulate`: simulated runs, and why one of them is slower."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
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
from tracewarehouse.location import Location
from tracewarehouse.present.render.table import table
from tracewarehouse.present.render.text import plural
from tracewarehouse.result import Field
from tracewarehouse.simulation import DIALECTS, GPUS, KINDS, MODES, Injection, Job, Noise

if TYPE_CHECKING:
    from tracewarehouse.demo import Demo, KernelChange, Overview


@command("tw demo", "tw demo -w /tmp/demo      # in a separate warehouse")
@output_options
def demo(session: Session, /) -> None:
    """Try tw on two simulated runs.

    They are ingested as demo-before and demo-after; other runs in the warehouse are not changed. The second
    run contains injected faults.
    """
    from tracewarehouse.demo import demo as run_demo
    from tracewarehouse.present.render.progress import bars

    with bars() as progress:
        done = run_demo(session.open(), notify=session.out.notice, progress=progress)
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
