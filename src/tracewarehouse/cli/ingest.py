"""`tw ingest`: stores trace files and folders, with a summary; `tw inbox`: what waits to be ingested."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tracewarehouse.cli.session import (
    DURATION,
    LABEL,
    Session,
    command,
    engine_options,
    examples,
    output_options,
    result_options,
)
from tracewarehouse.exact_text import MOST_RANKS
from tracewarehouse.hints import cli_text
from tracewarehouse.present.answers import ingest_error, ingest_notices, ingest_summary
from tracewarehouse.present.render.text import plural

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import IngestReport


@command(
    "tw ingest traces/",
    "tw ingest traces/fp8 --run fp8-on --label commit=3f2a91c",
    "tw ingest rank3.json.gz --run fp8-on --expect-ranks 8     # one rank per job",
    "tw ingest memory.raw.json.gz --run fp8-memory             # memory timeline",
    "tw ingest --inbox                                         # traces spooled by training jobs",
    "tw ingest s3://bucket/traces/fp8                          # traces in an object store",
    "tw ingest traces/ -w s3://bucket/warehouse                # warehouse in an object store",
    "tw ingest traces/ -w s3://bucket/warehouse --engine ray   # on a Ray cluster",
    rare=("jobs", "min_age", "strict", "temp_dir", "time_unit", "redact", "auto_labels"),
)
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path(readable=False))
@click.option("--run", metavar="NAME", help="Name of the run, or of the job in the inbox. [default: folder]")
@click.option("--label", "labels", multiple=True, type=LABEL, help="Label of the run (repeatable).")
@click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", help="Rank to use if the file does not specify one."
)
@click.option(
    "--expect-ranks",
    type=click.IntRange(1, MOST_RANKS),
    metavar="N",
    help="Publish only with N ranks, or by tw seal.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Number of processes. [default: one per core]"
)
@click.option("--replace", is_flag=True, help="Overwrite ranks that are already stored.")
@click.option(
    "--min-age", type=DURATION, default="30s", help="Skip truncated files modified within this time."
)
@click.option("--strict", is_flag=True, help="Store nothing unless all files are intact.")
@click.option("--inbox", is_flag=True, help="Ingest the traces that training jobs spooled to the inbox.")
@click.option(
    "--temp-dir",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Scratch folder for large files. [default: in the warehouse]",
)
@click.option(
    "--time-unit",
    type=click.Choice(["us", "ns"]),
    help="Unit of the timestamps. [default: that of the format]",
)
@click.option("--step-pattern", metavar="REGEX", help="Names of annotations that mark steps.")
@click.option(
    "--no-redact",
    "redact",
    is_flag=True,
    flag_value=False,
    default=True,
    show_default=False,
    help="Store strings that look like secrets as they are.",
)
@click.option(
    "--auto-labels/--no-auto-labels",
    default=True,
    show_default=False,
    help="Label runs with git commit, job, CI sha, … [default: on]",
)
@engine_options
@output_options
def ingest(
    session: Session,
    /,
    paths: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    min_age: float,
    inbox: bool,
    **options: Any,
) -> int:
    """Ingest trace files, or folders with one file per rank.

    Damaged files are repaired as far as possible and never block the others. Ingesting the same content
    again changes nothing.

    \fA PATH may be the URL of an object, of a folder of them, or a quoted pattern
    with *: each object is downloaded once, and not again while it is unchanged. New runs get labels,
    where known: slurm.job, wandb.run, ci.sha and image of this process, host of the trace, git.commit and
    git.branch if the traces lie in this work tree and are younger than its commit. TW_AUTO_LABELS=0
    switches them off. In the inbox, later starts of a job become runs RUN+1, RUN+2, ….
    """
    from tracewarehouse.formats.kineto.library import notice
    from tracewarehouse.present.render.progress import bars

    if not paths and not inbox:
        raise click.UsageError("specify files or folders to ingest, or --inbox")
    if (missing := notice()) is not None:
        session.out.notice(f"note: {missing}")
    warehouse = session.open()
    with session.engine(options["jobs"]) as engine, bars() as bar:
        report = warehouse.ingest(
            *paths,
            labels=dict(labels),
            min_age_s=min_age,
            inbox=inbox,
            progress=bar,
            engine=engine,
            shell_file=True,
            **options,
        )
    _print_report(session, report)
    return report.exit_code


def _print_report(session: Session, report: IngestReport) -> None:
    """Prints the summary to stdout and problems to stderr."""
    error = ingest_error(report)
    for line in ingest_notices(report):
        session.out.notice(line)
    text = "" if error else ingest_summary(report)
    rows = []
    for file in report.files:
        row: dict[str, object] = {
            "path": str(file.path),
            "state": file.state,
            "run": file.run,
            "rank": file.rank,
        }
        row |= {"reason": file.reason, "hint": file.hint and cli_text(file.hint), "notes": file.notes}
        for name in ("events", "non_events", "lost_bytes", "lost_events", "steps", "text_bytes"):
            row[name] = getattr(file.content, name) if file.content else None
        rows.append(row)
    session.out.print_text(text, rows, error)
    if session.debug:
        sys.stderr.writelines(file.details for file in report.files if file.details)


@click.group(
    epilog=examples(
        "tw inbox list",
    )
)
def inbox() -> None:
    """List or discard the traces that wait in the inbox.

    tw ingest --inbox ingests them.
    """


@command("tw inbox list", "tw inbox list --json", parent=inbox, name="list")
@result_options
def list_(session: Session, /) -> None:
    """List the runs in the inbox with their traces and size."""
    session.out.print_result(session.open().inbox())


@command("tw inbox discard fp8-on", parent=inbox)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@output_options
def discard(session: Session, /, runs: tuple[str, ...]) -> None:
    """Delete the traces of runs from the inbox without ingesting them."""
    paths = session.open().discard(runs)
    text = f"discarded {plural(len(paths), 'trace')} of {plural(len(set(runs)), 'run')}"
    session.out.print_text(text, [{"path": str(path)} for path in paths])
