"""`tw ingest`: files and folders into the warehouse, with bars while it runs and a summary at the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

import click

from tracewarehouse.cli.session import Pair, Session, Span, examples, output_options, pass_session
from tracewarehouse.errors import TwError

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import FileOutcome, IngestReport
    from tracewarehouse.warehouse import Warehouse


@click.command(
    epilog=examples(
        "tw ingest traces/",
        "tw ingest traces/fp8 --run fp8-on --label commit=3f2a91c",
        "tw ingest rank3.json.gz --run fp8-on --expect-ranks 8     # each job brings its own rank",
        "tw ingest memory.raw.json.gz --run fp8-memory             # a memory timeline",
        "tw ingest --inbox                                         # what training jobs left for us",
    )
)
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path(readable=False))
@click.option("--run", metavar="NAME", help="Name of the run. [default: the name of the folder]")
@click.option("--label", "labels", multiple=True, type=Pair(), help="A label for the run.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Rank, where a file does not tell.")
@click.option(
    "--expect-ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help="Publish when N ranks are there, not before.",
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes. [default: one per core]")
@click.option("--replace", is_flag=True, help="Put these files in the place of what is stored.")
@click.option(
    "--settle",
    type=Span(),
    default="30s",
    show_default=True,
    help="Leave a file cut short that is younger than this for later.",
)
@click.option("--strict", is_flag=True, help="Store nothing unless every file is whole.")
@click.option("--inbox", is_flag=True, help="Take in what training jobs left in the inbox of the warehouse.")
@click.option(
    "--temp-dir",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Where large files are worked on. [default: on the disk of the warehouse]",
)
@click.option(
    "--time-unit",
    type=click.Choice(["us", "ns"]),
    help="Unit of the times in the files. [default: that of their format]",
)
@output_options
@pass_session
def ingest(
    session: Session,
    /,
    paths: tuple[str, ...],
    run: str | None,
    labels: tuple[tuple[str, str], ...],
    rank: int | None,
    expect_ranks: int | None,
    jobs: int | None,
    replace: bool,
    settle: float,
    strict: bool,
    inbox: bool,
    temp_dir: str | None,
    time_unit: Literal["us", "ns"] | None,
) -> int:
    """Take traces into the warehouse: files, or folders with one file per rank."""
    from tracewarehouse.formats.kineto import native
    from tracewarehouse.render.progress import bars

    if not paths and not inbox:
        raise click.UsageError("name the files or folders to take in, or say --inbox")
    if (notice := native.notice()) is not None:
        session.out.notice(f"note: {notice}")
    warehouse = session.open()
    with bars() as progress:
        report = warehouse.ingest(
            *paths,
            run=run,
            labels=dict(labels),
            rank=rank,
            expect_ranks=expect_ranks,
            jobs=jobs,
            replace=replace,
            settle_s=settle,
            strict=strict,
            inbox=inbox,
            temp_dir=temp_dir,
            time_unit=time_unit,
            progress=progress,
        )
    _tell(session, report)
    if any(run.written for run in report.runs):
        _refresh(session, warehouse)
    return report.exit_code


def _refresh(session: Session, warehouse: Warehouse) -> None:
    """What is published stays so where the file for DuckDB shells cannot be written; a notice says it."""
    try:
        warehouse.refresh()
    except (TwError, OSError) as error:
        session.out.notice(f"note: warehouse.duckdb is not up to date: {error}; tw refresh writes it")


def _tell(session: Session, report: IngestReport) -> None:
    """The summary to stdout, what went wrong to stderr."""
    from tracewarehouse.cli.summary import failed, notices, summary

    error = failed(report)
    for line in notices(report):
        session.out.notice(line)
    text = "" if error else summary(report)
    session.out.say(text, [_row(file) for file in report.files], error)
    if session.debug:
        sys.stderr.writelines(file.details for file in report.files if file.details)


def _row(file: FileOutcome) -> dict[str, object]:
    found = file.content
    row: dict[str, object] = {"path": str(file.path), "state": file.state, "run": file.run, "rank": file.rank}
    row |= {"reason": file.reason, "hint": file.hint, "notes": file.notes}
    for name in ("events", "non_events", "lost_bytes", "lost_events", "steps", "text_bytes"):
        row[name] = getattr(found, name) if found else None
    return row
