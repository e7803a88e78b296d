"""`tw inbox`: what training jobs spooled and no one has ingested yet."""

from __future__ import annotations

import click

from tracewarehouse.cli.session import Session, command, examples, output_options, result_options
from tracewarehouse.present.render.text import plural


@click.group(
    epilog=examples(
        "tw inbox list",
    )
)
def inbox() -> None:
    """List or discard the traces that wait in the inbox.

    tw ingest --inbox ingests them.
    """


@command(
    "tw inbox list",
    "tw inbox list --json",
    parent=inbox,
    name="list",
)
@result_options
def list_(session: Session, /) -> None:
    """List the runs in the inbox with their traces and size."""
    session.out.print_result(session.open().inbox())


@command(
    "tw inbox discard fp8-on",
    parent=inbox,
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@output_options
def discard(session: Session, /, runs: tuple[str, ...]) -> None:
    """Delete the traces of runs from the inbox without ingesting them."""
    paths = session.open().discard(runs)
    text = f"discarded {plural(len(paths), 'trace')} of {plural(len(set(runs)), 'run')}"
    session.out.print_text(text, [{"path": str(path)} for path in paths])
