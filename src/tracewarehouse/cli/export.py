"""`tw export`: what is stored, given back as files for other tools."""

from __future__ import annotations

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import Session, examples, output_options, pass_session


@click.group(epilog=examples("tw export trace fp8-on --rank 0 --output rank0.json.gz"))
def export() -> None:
    """Give back what is stored, as files for other tools."""


@export.command(
    epilog=examples(
        "tw export trace fp8-on --rank 0 --output rank0.json.gz",
        "tw export trace @latest --rank 3 > rank3.json",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="The rank, where there are several.")
@output_options
@pass_session
def trace(session: Session, /, run: str, rank: int | None) -> None:
    """Rebuild a rank's trace from the tables, for Perfetto and others: its header and every event."""
    if session.json and session.output is None:
        raise click.UsageError("--json tells about the file that was written: give --output FILE, too")
    pieces = session.open().export_trace(run, rank)
    session.out.pour(pieces, {"run": run, "rank": rank})
