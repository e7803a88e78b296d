"""`tw simulate`: traces of a job that never ran, and the right answers about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tracewarehouse.cli.session import Command, Session, examples, output_options, pass_session
from tracewarehouse.simulation import DIALECTS, GPUS, KINDS, MODES, Injection, Job, Noise

_PLANTS = "\n".join(
    f"  {kind:17} {doc}" + (f" ({', '.join(values)})" if values else "")
    for kind, (doc, values) in KINDS.items()
)
_COUNTS = {
    "ranks": "Ranks, one GPU each.",
    "steps": "Profiler steps.",
    "layers": "Layers of the model.",
    "hidden": "Width of the model.",
    "batch": "Sequences per rank and microbatch.",
    "sequence": "Tokens of a sequence.",
    "microbatches": "Microbatches of a step.",
    "tensor": "Ranks that share each layer.",
    "pipeline": "Stages that share the layers.",
    "ranks_per_node": "Ranks of one node, between which the link is fast.",
    "network_gb_per_s": "Bandwidth between nodes.",
    "launch_ns": "How long a launch takes the host.",
    "queue_limit": "Kernels that may wait on a stream before a launch blocks.",
    "load_us": "How long it takes to load a batch.",
    "workers": "Processes that load batches ahead; 0: the training thread does it.",
}
_FLAGS = {
    "sharded": "Shard weights: gather them, scatter gradients.",
    "experts": "Exchange tokens between experts, all to all.",
    "graphs": "Launch the layers as one CUDA graph.",
    "dependent_launch": "Let kernels start before the one before them ends.",
    "counters": "Record counters.",
}
_SPREADS = {
    "run": "Spread of the whole run, sigma of a lognormal.",
    "step": "Spread of each step.",
    "kernel": "Spread of each kernel.",
    "outliers": "Share of steps drawn from Student's t with 3 degrees of freedom.",
}


class Plant(click.ParamType[Injection]):
    """KIND[:KEY=VALUE,…], something to plant."""

    name = "KIND[:KEY=VALUE,…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Injection:
        """The injection; raises UnknownName or ParamError with what there is."""
        return value if isinstance(value, Injection) else Injection.parse(str(value))


def _knobs(command: Command) -> Command:
    """Adds an option for each knob of a job, with the job's default."""
    usual = Job()
    options: list[Callable[[Command], Command]] = []
    for name, doc in _COUNTS.items():
        options.append(
            click.option(_flag(name), type=int, default=getattr(usual, name), help=doc, show_default=True)
        )
    for name, doc in _FLAGS.items():
        options.append(click.option(_flag(name), is_flag=True, help=doc))
    for name, doc in _SPREADS.items():
        spread = getattr(usual.noise, name)
        options.append(
            click.option(f"--noise-{name}", type=float, default=spread, help=doc, show_default=True)
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
    + "\n\n\b\nTo plant (most also take rank and step, counted from 0):\n"
    + _PLANTS
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@_knobs
@click.option("--link-gb-per-s", type=int, help="Bandwidth within a node.", show_default="that of the GPU")
@click.option("--mode", type=click.Choice(MODES), default="training", show_default=True, help="What runs.")
@click.option("--gpu", type=click.Choice(tuple(GPUS)), default="H100", show_default=True, help="The GPU.")
@click.option(
    "--dialect", type=click.Choice(DIALECTS), default="new", show_default=True, help="Whose format."
)
@click.option("--stacks/--no-stacks", default=True, help="Record Python frames.", show_default=True)
@click.option("--memory/--no-memory", default=True, help="Record allocations.", show_default=True)
@click.option("--syncs/--no-syncs", default=True, help="Record what waited for what.", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Same knobs, same seed: same bytes.")
@click.option("--start", default=Job().start, show_default=True, help="When the run begins, UTC.")
@click.option(
    "--inject", "injections", type=Plant(), multiple=True, help="Plant something. May be given again."
)
@output_options
@pass_session
def simulate(
    session: Session, /, folder: Path, noise_run: float, noise_step: float, noise_kernel: float,
    noise_outliers: float, **knobs: Any,
) -> None:  # fmt: skip
    """Write the traces of a job that never ran, a file per rank, and truth.json, the right answers."""
    from tracewarehouse.simulation import simulate as write

    noise = Noise(noise_run, noise_step, noise_kernel, noise_outliers)
    done = write(folder, Job(noise=noise, **knobs))
    rate = done.events / max(done.seconds, 1e-9)
    told = f"{len(done.files)} ranks, {done.events:,} events in {done.seconds:.1f} s ({rate:,.0f}/s)"
    fact = {"folder": str(folder), "files": len(done.files), "events": done.events, "truth": str(done.truth)}
    session.out.print_text(f"{folder}: {told}; the answers are in {done.truth}", [fact])
