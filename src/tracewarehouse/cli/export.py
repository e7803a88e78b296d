"""`tw export`: what is stored, given back as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import Session, examples, output_options, pass_session
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
        "tw export trace @latest --rank 3 > rank3.json",
        "tw export trace fp8-on --rank 0 --counters queue_length,memory_bandwidth -o seen/rank0.json.gz",
        "tw export trace fp8-on --rank 0 --overlay annotations,kernel_sequences -o seen/rank0.json.gz",
        "tw export trace fp8-on --rank 0 --overlay critical_path -o seen/rank0.json.gz",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="The rank, where there are several.")
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
    "(what operators launch, numbered by how often), critical_path (once it is derived).",
)
@output_options
@pass_session
def trace(
    session: Session,
    /,
    run: str,
    rank: int | None,
    counters: tuple[tuple[str, ...], ...],
    overlays: tuple[tuple[str, ...], ...],
) -> None:
    """Rebuild a rank's trace from the tables, for Perfetto and others: its header and every event.

    Counters and overlays are added behind them, in a new file: never over another, nor beside the trace
    itself, where the next `tw ingest` would take both.
    """
    if session.json and session.output is None:
        raise click.UsageError("--json tells about the file that was written: give --output FILE, too")
    warehouse = session.open()
    drawn, laid = sum(counters, ()), sum(overlays, ())
    pieces = warehouse.export_trace(run, rank, counters=drawn, overlays=laid)
    if (drawn or laid) and session.output is not None:
        _check_apart(session.output, {row["source_name"] for row in warehouse.info(run).ranks.rows()})
    session.out.pour(pieces, {"run": run, "rank": rank})


def _check_apart(output: Path, sources: set[str | None]) -> None:
    """Raises TwError where the file is there already, or its folder holds a file the run was read from."""
    if output.exists():
        raise TwError(f"{output} is there already", "name a new file")
    beside = sorted(name for name in sources if name and (output.parent / name).exists())
    if beside:
        raise TwError(
            f"{output.parent} holds {beside[0]}, which the run was read from", "name another folder"
        )
