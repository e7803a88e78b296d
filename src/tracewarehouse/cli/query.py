"""`tw query`: SQL of your own."""

from __future__ import annotations

import sys

import click

from tracewarehouse.cli.session import (
    Session,
    choosing_options,
    examples,
    pass_session,
    result_options,
)


@click.command(
    epilog=examples(
        'tw query "SELECT name, sum(dur_ns) AS sum_ns FROM kernels GROUP BY name ORDER BY sum_ns DESC"',
        'tw query --run fp8-on "SELECT count(*) FROM events"',
        "tw sql temporal_breakdown | tw query -",
    )
)
@click.argument("sql", metavar="SQL")
@choosing_options
@result_options
@pass_session
def query(session: Session, /, sql: str) -> None:
    """Run one SELECT over tables and views; - reads it from stdin. It cannot write, or read elsewhere."""
    session.out.show(session.open().query(sys.stdin.read() if sql == "-" else sql))
