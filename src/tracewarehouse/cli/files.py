"""`tw fetch` and `tw files`: the data files of a run, on this machine or in an object store."""

from __future__ import annotations

import click

from tracewarehouse.cli.session import (
    Session,
    complete_runs,
    examples,
    output_options,
    pass_session,
    result_options,
)


@click.command(
    epilog=examples(
        "tw fetch fp8-on -w s3://bucket/warehouse",
        "tw fetch fp8-on fp8-off --table kernels --table steps",
    )
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@click.option("--table", "tables", multiple=True, metavar="TABLE", help="Only this table (repeatable).")
@output_options
@pass_session
def fetch(session: Session, /, runs: tuple[str, ...], tables: tuple[str, ...]) -> None:
    """Download the files of runs from an object store.

    Questions about them then download nothing. The local copies are compared with their checksums.
    TW_MIRROR names their folder, TW_MIRROR_BYTES limits them: runs that need more are refused before anything
    is downloaded.
    """
    from tracewarehouse.present.render.text import plural, size

    done = session.open().fetch(runs, tables=tables)
    text = f"{plural(done.files, 'file')} ({size(done.bytes)}), {done.downloaded} downloaded"
    session.out.print_text(
        f"{text} ({size(done.downloaded_bytes)})" if done.downloaded else text, [vars(done)]
    )


@click.command(
    epilog=examples(
        "tw files fp8-on kernels",
        "tw files fp8-on@v1 events --format json",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("table", metavar="TABLE")
@result_options
@pass_session
def files(session: Session, /, run: str, table: str) -> None:
    """List the Parquet files of a table of a run.

    Each with its bytes, rows, ranks and SHA-256. Other tools may read these files, and nothing else in the
    folder.
    """
    session.out.print_result(session.open().files(run, table))
