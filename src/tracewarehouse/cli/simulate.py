"""`tw simulate`: traces of a simulated job, and the expected results of analyses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tracewarehouse.cli.session import Command, Session, examples, no_warehouse_options, pass_session
from tracewarehouse.present.render.text import plural
from tracewarehouse.simulation import DIALECTS, GPUS, KINDS, MODES, Injection, Job, Noise

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


class InjectionParam(click.ParamType[Injection]):
    """KIND[:KEY=VALUE,…]: a fault to inject."""

    name = "FAULT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Injection:
        """The injection; raises UnknownName, ParamError."""
        return value if isinstance(value, Injection) else Injection.parse(str(value))


def _job_options(command: Command) -> Command:
    """Adds an option for each setting of a job."""
    defaults = Job()
    options: list[Callable[[Command], Command]] = []
    for name, doc in _COUNTS.items():
        options.append(
            click.option(_flag(name), type=int, default=getattr(defaults, name), help=doc, show_default=True)
        )
    for name, doc in _FLAGS.items():
        options.append(click.option(_flag(name), is_flag=True, help=doc))
    for name, doc in _NOISE.items():
        sigma = getattr(defaults.noise, name)
        options.append(
            click.option(f"--noise-{name}", type=float, default=sigma, help=doc, show_default=True)
        )
    for option in reversed(options):
        command = option(command)
    return command


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@click.command(
    epilog=examples(
        "tw simulate sim --ranks 8 --tensor 2 --seed 7",
        "tw simulate slow --ranks 8 --inject slow-rank:rank=3,what=host,factor=2",
        "tw simulate serve --mode inference --graphs --ranks 2 --tensor 2 --steps 20",
    )
    + "\n\n\b\nFaults to inject as KIND[:KEY=VALUE,…] (most also accept rank and step, zero-based):\n"
    + _FAULTS
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@_job_options
@click.option("--link-gb-per-s", type=int, help="Bandwidth within a node in GB/s. [default: GPU model]")
@click.option("--mode", type=click.Choice(MODES), default="training", show_default=True, help="Kind of job.")
@click.option("--gpu", type=click.Choice(tuple(GPUS)), default="H100", show_default=True, help="GPU model.")
@click.option(
    "--dialect", type=click.Choice(DIALECTS), default="new", show_default=True, help="Trace format."
)
@click.option("--stacks/--no-stacks", default=True, help="Record Python stacks.", show_default=True)
@click.option("--memory/--no-memory", default=True, help="Record memory allocations.", show_default=True)
@click.option(
    "--inputs/--no-inputs",
    default=True,
    help="Record inputs of backward operators.",
    show_default=True,
)
@click.option("--syncs/--no-syncs", default=True, help="Record synchronization events.", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed; output is reproducible.")
@click.option("--start", default=Job().start, show_default=True, help="Start time, UTC.")
@click.option(
    "--inject",
    "injections",
    type=InjectionParam(),
    multiple=True,
    help="Inject a fault, see below (repeatable).",
)
@no_warehouse_options
@pass_session
def simulate(
    session: Session, /, folder: Path, noise_run: float, noise_step: float, noise_kernel: float,
    noise_outliers: float, **settings: Any,
) -> None:  # fmt: skip
    """Generate traces of a simulated distributed job.

    FOLDER gets one trace file per rank in PyTorch's format, and truth.json with the expected results of
    analyses.
    """
    from tracewarehouse.simulation import simulate as write

    noise = Noise(noise_run, noise_step, noise_kernel, noise_outliers)
    done = write(folder, Job(noise=noise, **settings))
    rate = done.events / max(done.seconds, 1e-9)
    summary = (
        f"{plural(len(done.files), 'rank')}, {done.events:,} events in {done.seconds:.1f} s ({rate:,.0f}/s)"
    )
    fact = {"folder": str(folder), "files": len(done.files), "events": done.events, "truth": str(done.truth)}
    session.out.print_text(f"{folder}: {summary}; expected results: {done.truth}", [fact])
