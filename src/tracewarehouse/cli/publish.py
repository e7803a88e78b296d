"""`tw publish`: copies of tables for other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.option_types import NamesParam
from tracewarehouse.cli.session import Session, complete_runs, examples, output_options, pass_session

if TYPE_CHECKING:
    from tracewarehouse.export.delta import Publication


@click.group(epilog=examples("tw publish delta lake/"))
def publish() -> None:
    """Publish tables for other engines."""


@publish.command(
    epilog=examples(
        "tw publish delta lake/",
        "tw publish delta s3://bucket/lake 'nightly-*' --tables kernels,steps",
    )
)
@click.argument("destination", metavar="DEST")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--tables", type=NamesParam(), help="Tables. [default: kernels,steps,annotations,runs,ranks]")
@output_options
@pass_session
def delta(
    session: Session, /, destination: str, runs: tuple[str, ...], tables: tuple[str, ...] | None
) -> None:
    """Copy tables to Delta tables below DEST, a folder or URL.

    Each version of a run is written exactly once, however often and by however many processes: a newer
    version replaces the rows of its run, and the rows of a removed run are deleted. Table tw_published lists
    what is complete. Needs the extra `delta`.
    """
    done = session.open().publish_delta(destination, runs or None, tables=tables or ())
    lines = [_line(each) for each in done if each.written]
    session.out.print_text("\n".join(lines) or "nothing to publish", [vars(each) for each in done])


def _line(done: Publication) -> str:
    verb = "deleted" if done.removed else "published"
    return f"{verb} {done.run}@v{done.version}: {', '.join(done.written)}"
