"""`tw query` and `tw shell`: SQL of your own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from tracewarehouse.cli.session import (
    Session,
    choosing_options,
    examples,
    output_options,
    pass_session,
    result_options,
)
from tracewarehouse.errors import TwError


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


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "tw shell",
        "tw shell --run @latest",
        'tw shell -- -c "FROM tw_help"',
    ),
)
@click.argument("args", metavar="[-- ARGS OF DUCKDB]...", nargs=-1, type=click.UNPROCESSED)
@choosing_options
@output_options
@pass_session
def shell(session: Session, /, args: tuple[str, ...]) -> int:
    """Open the DuckDB shell, read-only: a view for each table, a view and a macro for each analysis."""
    with session.open().shell_file() as path:
        return subprocess.run([_shell_program(), "-readonly", str(path), *args], check=False).returncode


def _shell_program() -> str:
    """The DuckDB shell of this environment, else of the PATH; raises TwError where there is none."""
    beside = Path(sys.executable).parent / "duckdb"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("duckdb")
    if found is None:
        raise TwError("no DuckDB shell was found", "pip install duckdb-cli")
    return found
