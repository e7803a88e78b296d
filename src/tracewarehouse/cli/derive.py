"""`tw derive` and `tw whatif`: critical paths, as they are and as they would be."""

from __future__ import annotations

from collections.abc import Sized

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import (
    Command,
    RankList,
    Session,
    examples,
    output_options,
    pass_session,
    result_options,
)


def scope_options(command: Command) -> Command:
    """Adds the options that say which ranks and which stretches of them are meant."""
    for add in (
        click.option("--whole", is_flag=True, help="The whole trace."),
        click.option(
            "--annotation",
            "annotations",
            multiple=True,
            metavar="NAME#K",
            help="The K-th annotation of that name on the host, counted from 0. May be given again.",
        ),
        click.option(
            "--step", "steps", type=int, multiple=True, metavar="N", help="This step. May be given again."
        ),
        click.option("--rank", "ranks", type=RankList(), help="Only these ranks: 3, or 0,2, or 0-3."),
    ):
        command = add(command)
    return command


@click.group(epilog=examples("tw derive critical_path fp8-on"))
def derive() -> None:
    """Make tables that need more than SQL, as a new version of a run."""


@derive.command(
    "critical_path",
    epilog=examples(
        "tw derive critical_path fp8-on && tw show critical_path_breakdown --run fp8-on",
        "tw derive critical_path fp8-on --rank 0-3 --step 12 --step 13",
        "tw derive critical_path @latest --annotation 'forward#2'",
    ),
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@scope_options
@output_options
@pass_session
def critical_path(
    session: Session,
    /,
    run: str,
    ranks: tuple[int, ...] | None,
    steps: tuple[int, ...],
    annotations: tuple[str, ...],
    whole: bool,
) -> None:
    """Find what each complete step (or what is asked for) had to wait for, from its start to its end.

    Without steps in the trace it is the whole of it. Scopes that were derived before stay; what is there
    already is not made again.
    """
    warehouse = session.open()
    done = warehouse.derive(
        "critical_path", run, ranks=ranks, steps=steps, annotations=annotations, whole=whole
    )
    scopes = {scope for each in done.scopes.values() for scope in each}
    made = f"{done.run}@v{done.version}" if done.version else f"{done.run}: nothing to derive"
    told = f"{made}: {_count(done.scopes, 'rank')}, {_count(scopes, 'scope')}"
    row = {"run": done.run, "version": done.version, "scopes": {str(r): s for r, s in done.scopes.items()}}
    for notice in done.notices:
        session.out.notice(notice)
    session.out.say(told, [row])


def _count(things: Sized, word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


@click.command(
    epilog=examples(
        "tw whatif fp8-on --scale 'kernels[kind=communication]=0.5'",
        "tw whatif fp8-on --rank 0 --step 12 --scale 'kernels[op=aten::mm]=0.8' --scale host=0.9",
        "tw whatif @latest --scale \"kernels[name='*gemm*']=0.5\" --by op --head 20",
    ),
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option(
    "--scale",
    "scales",
    multiple=True,
    required=True,
    metavar="WHAT[FILTER,...]=FACTOR",
    help="What takes FACTOR times as long: kernels, host, launch, a category of critical_path_breakdown, "
    "or all. Filters are kind=, name= and op= (any operator around), * is anything. May be given again.",
)
@click.option(
    "--by",
    type=click.Choice(["category", "op"]),
    default="category",
    show_default=True,
    help="How finely the path is told.",
)
@scope_options
@result_options
@pass_session
def whatif(
    session: Session,
    /,
    run: str,
    scales: tuple[str, ...],
    by: str,
    ranks: tuple[int, ...] | None,
    steps: tuple[int, ...],
    annotations: tuple[str, ...],
    whole: bool,
) -> None:
    """Tell how long steps would take if parts of them took longer or shorter. Nothing is stored.

    Every dependency is kept, so what was hidden behind something else decides when that gets shorter. Each
    rank stands alone: a collective takes as long as it did on this rank, times its factor.
    """
    found = session.open().whatif(
        run, scales, ranks=ranks, steps=steps, annotations=annotations, whole=whole, by=by
    )
    session.out.show(found)
