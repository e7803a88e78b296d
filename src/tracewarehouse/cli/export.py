"""`tw export`: what is stored, given back as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import RankList, Session, examples, output_options, pass_session
from tracewarehouse.errors import TwError


@click.group(epilog=examples("tw export trace fp8-on --rank 0 --output rank0.json.gz"))
def export() -> None:
    """Give back what is stored, as files for other tools."""


class Names(click.ParamType[tuple[str, ...]]):
    """`a` or `a,b`."""

    name = "NAMES"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names; whether they are known is found later."""
        return tuple(name.strip() for name in str(value).split(",") if name.strip())


@export.command(
    epilog=examples(
        "tw export trace fp8-on --rank 0 --output rank0.json.gz",
        "tw export trace fp8-on --rank 0 --step 12 -o seen/step12.json.gz",
        "tw export trace fp8-on --around input_bound --margin 5ms -o seen/input.json.gz",
        "tw export trace fp8-on --rank 0-3 --from 1.2s --to 1350ms -o seen/four-ranks.json.gz",
        "tw export trace fp8-on --rank 0 --counters queue_length,memory_bandwidth -o seen/rank0.json.gz",
        "tw export trace fp8-on --rank 0 --overlay annotations,kernel_sequences -o seen/rank0.json.gz",
        "tw export trace fp8-on --rank 0 --overlay critical_path -o seen/rank0.json.gz",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option(
    "--rank",
    "ranks",
    type=RankList(),
    help="The rank, where there are several: 3. With 0,2 or 0-3 they stand side by side, clocks aligned "
    "where collectives tell how.",
)
@click.option(
    "--from",
    "start",
    metavar="TIME",
    help="Keep what comes later: 1.2s, 350ms or 20us since the first event; a number alone is a time in "
    "ns as in the tables (ts_ns).",
)
@click.option("--to", "end", metavar="TIME", help="Keep what comes before; times as for --from.")
@click.option("--step", type=int, metavar="N", help="Keep this step, on the host and on the GPU.")
@click.option(
    "--around",
    metavar="FINDING",
    help="Keep the place where a finding of `tw check` is worst, by its rule: input_bound. Without --rank in "
    "that rank.",
)
@click.option(
    "--margin",
    metavar="TIME",
    help="This much more on both sides of what is kept: 2ms. 1ms around a finding, else none by default.",
)
@click.option(
    "--counters",
    type=Names(),
    multiple=True,
    help="Draw series over it: queue_length (rows waiting, by stream), memory_bandwidth (by direction).",
)
@click.option(
    "--overlay",
    "overlays",
    type=Names(),
    multiple=True,
    help="Draw on tracks of their own: annotations (those around each GPU row's launch), kernel_sequences "
    "(what operators launch, numbered by how often), critical_path (once it is derived), idle (why a device "
    "stood idle), steps, findings (where each is worst).",
)
@click.option("--plain", is_flag=True, help="Draw nothing over a part, and nothing over ranks side by side.")
@output_options
@pass_session
def trace(
    session: Session,
    /,
    run: str,
    ranks: tuple[int, ...] | None,
    counters: tuple[tuple[str, ...], ...],
    overlays: tuple[tuple[str, ...], ...],
    **where: Any,
) -> None:
    """Rebuild a rank's trace from the tables, for Perfetto and others: its header and every event.

    Of a part, slices that overlap it are kept whole, and arrows where both ends are; idle times, steps,
    findings and the queue length are drawn over it, unless --overlay and --counters choose, or --plain.
    Beside other ranks each has processes and ids of its own, and its times are printed anew where its clock
    was moved. What is added has the category overlay. It goes into a new file: never over another, nor beside
    the trace itself, where the next `tw ingest` would take both.
    """
    if session.json and session.output is None:
        raise click.UsageError("--json tells about the file that was written: give --output FILE, too")
    warehouse = session.open()
    drawn, laid = (sum(names, ()) if names else None for names in (counters, overlays))
    exported = warehouse.export_trace(run, ranks, counters=drawn, overlays=laid, **where)
    if exported.is_new and session.output is not None:
        _check_apart(session.output, {row["source_name"] for row in warehouse.info(run).ranks.rows()})
    for notice in exported.notices:
        session.out.notice(notice)
    many = {"ranks": list(exported.ranks)} if len(exported.ranks) > 1 else {"rank": exported.ranks[0]}
    session.out.pour(exported, {"run": run, **many})


def _check_apart(output: Path, sources: set[str | None]) -> None:
    """Raises TwError where the file is there already, or its folder holds a file the run was read from."""
    if output.exists():
        raise TwError(f"{output} is there already", "name a new file")
    beside = sorted(name for name in sources if name and (output.parent / name).exists())
    if beside:
        raise TwError(
            f"{output.parent} holds {beside[0]}, which the run was read from", "name another folder"
        )
