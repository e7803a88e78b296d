"""`tw ingest`: stores trace files and folders, with a summary; `tw inbox`: what waits to be ingested."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
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
from tracewarehouse.errors import TwError
from tracewarehouse.exact_text import MOST_RANKS, rank_list
from tracewarehouse.hints import cli_text
from tracewarehouse.present.render.text import count, duration, plural, ratio, size
from tracewarehouse.runs.recording import SOUND

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import FileOutcome, IngestReport, RunOutcome


@command(
    "tw ingest traces/",
    "tw ingest traces/fp8 --run fp8-on --label commit=3f2a91c",
    "tw ingest rank3.json.gz --run fp8-on --expect-ranks 8     # one rank per job",
    "tw ingest memory.raw.json.gz --run fp8-memory             # memory timeline",
    "tw ingest --inbox                                         # traces spooled by training jobs",
    "tw ingest s3://bucket/traces/fp8                          # traces in an object store",
    "tw ingest traces/ -w s3://bucket/warehouse                # warehouse in an object store",
    "tw ingest traces/ -w s3://bucket/warehouse --engine ray   # on a Ray cluster",
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
    "--settle",
    type=DURATION,
    default="30s",
    show_default=True,
    help="Skip truncated files modified within this time.",
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
@click.option(
    "--step-range",
    metavar="REGEX",
    help="Names of annotations that mark steps.",
)
@click.option(
    "--no-redact",
    "redact",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Store strings that look like secrets as they are.",
)
@click.option(
    "--auto-labels/--no-auto-labels",
    default=True,
    help="Label runs with git commit, job, CI sha, … [default: on]",
)
@engine_options
@output_options
def ingest(
    session: Session,
    /,
    paths: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    settle: float,
    inbox: bool,
    **options: Any,
) -> int:
    """Ingest trace files, or folders with one file per rank.

    Damaged files are repaired as far as possible and never block the others. Ingesting the same content
    again changes nothing. A PATH may be the URL of an object, of a folder of them, or a quoted pattern
    with *: each object is downloaded once, and not again while it is unchanged. New runs get labels,
    where known: slurm.job, wandb.run, ci.sha and image of this process, host of the trace, git.commit and
    git.branch if the traces lie in this work tree and are younger than its commit. TW_AUTO_LABELS=0
    switches them off. In the inbox, later starts of a job become runs RUN+1, RUN+2, ….
    """
    from tracewarehouse.formats.kineto.library import notice, scan_ahead

    scan_ahead(paths)
    from tracewarehouse.present.render.progress import bars

    if not paths and not inbox:
        raise click.UsageError("specify files or folders to ingest, or --inbox")
    if (missing := notice()) is not None:
        session.out.notice(f"note: {missing}")
    warehouse = session.open()
    with session.engine(options["jobs"]) as engine, bars() as progress:
        report = warehouse.ingest(
            *paths,
            labels=dict(labels),
            settle_s=settle,
            inbox=inbox,
            progress=progress,
            engine=engine,
            **options,
        )
    _print_report(session, report)
    if any(run.written for run in report.runs) and not warehouse.store.is_remote:
        from tracewarehouse.query import shell_file
        from tracewarehouse.runs.rows import catalog_row

        try:
            warehouse.store.list_runs(catalog_row)
            shell_file.update(warehouse.store, warehouse.catalog, session.out.notice)
        except (TwError, OSError) as error:  # the runs are already published
            session.out.notice(f"note: warehouse.duckdb is out of date: {error}; rebuild it with tw refresh")
    return report.exit_code


def _print_report(session: Session, report: IngestReport) -> None:
    """Prints the summary to stdout and problems to stderr."""
    error = failed(report)
    for line in notices(report):
        session.out.notice(line)
    text = "" if error else summary(report)
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


_NAMED_RECORDINGS, _MOST_ALIKE = 5, 5
STATES_LISTED_PER_FILE = ("refused", "damaged", "repaired", "pending", "skipped")


def notices(report: IngestReport) -> Iterator[str]:
    """A line for each file that was not stored as is, with its hint; then notes on runs.

    Many files with the same reason have one line.
    """
    alike = Counter((file.state, _reason(file)) for file in report.files)
    said = set()
    for file in report.files:
        key = file.state, _reason(file)
        if file.state in STATES_LISTED_PER_FILE and key not in said:
            is_many = key[1] and alike[key] > _MOST_ALIKE
            said |= {key} if is_many else set()
            which = f"{alike[key]:,} files such as {file.path}" if is_many else file.path
            yield f"{file.state}: {which}{f': {key[1]}' if key[1] else ''}"
            if file.hint:
                yield f"hint: {cli_text(file.hint)}"
        yield from (f"note: {file.path}: {note}" for note in file.notes)
    if report.files and len(report.of("skipped")) == len(report.files):
        from tracewarehouse.ingest.survey import TRACES

        yield f"hint: {TRACES}"
    yield from (f"note: {cli_text(note)}" for note in report.notes)
    for run in report.runs:
        yield from (f"quality: run {run.run}: {rule}: {text}" for rule, text in run.rules)


def failed(report: IngestReport) -> TwError | None:
    """The error of an ingest that stored nothing although it was given files."""
    if report.exit_code != 1:
        return None
    if report.strict:
        return TwError("nothing was stored: --strict requires all files to be intact")
    counts = {state: len({file.path for file in report.of(state)}) for state in ("refused", "skipped")}
    counted = ", ".join(f"{plural(number, 'file')} {state}" for state, number in counts.items() if number)
    return TwError(f"nothing was stored: {counted}")


def summary(report: IngestReport) -> str:
    """Counts, coverage, data quality, speed, and the next commands."""
    lines = [*_recordings(report), _headline(report)]
    lines += [f"  run {run.run}  {_state(run)}" for run in report.runs]
    facts = dict(_facts(report))
    width = max(map(len, facts), default=0)
    lines += [f"  {name.ljust(width)}  {text}" for name, text in facts.items()]
    if report.next_commands:
        lines += ["next", *(f"  {cli_text(command)}" for command in report.next_commands)]
    return "\n".join(lines) + "\n"


def _recordings(report: IngestReport) -> Iterator[str]:
    """What the recordings can carry: a line for each run with limits, or one for all if there are none."""
    states = {run.run: run.recording for run in report.runs if run.recording}
    limited = [f"recording of {run}: {state}" for run, state in states.items() if state != SOUND]
    yield from limited[:_NAMED_RECORDINGS]
    if len(limited) > _NAMED_RECORDINGS:
        yield f"recordings of {len(limited) - _NAMED_RECORDINGS} more runs have limits (tw show recording)"
    if states and not limited:
        yield f"recording: {SOUND}"


def _headline(report: IngestReport) -> str:
    """The number of ingested ranks, then files by other outcomes."""
    ranks = {(file.run, file.rank) for file in report.stored}  # several files may belong to one
    runs = {run for run, _ in ranks}
    ingested = f"ingested {plural(len(ranks), 'rank')} of {plural(len(runs), 'run')}"
    others = {
        "refused": len({file.path for file in report.of("refused")}),
        "damaged": len(report.of("damaged")),
        "pending": sum(file.content is None for file in report.of("pending")),
        "already stored": len(report.of("same")),
    }
    counts = [f"{number} {state}" for state, number in others.items() if number]
    return ", ".join([ingested if runs else "no traces ingested", *counts])


def _state(run: RunOutcome) -> str:
    if run.waiting is not None:
        return "pending {}/{}".format(*run.waiting)
    of = f" of {run.expected_ranks}" if run.expected_ranks is not None else ""
    noun = "rank" if len(run.ranks) == 1 else "ranks"
    return f"v{run.version}, {noun} {rank_list(list(run.ranks))}{of}"


def _facts(report: IngestReport) -> Iterator[tuple[str, str]]:
    contents = [file.content for file in report.stored if file.content]
    if not contents:
        return
    others = sum(content.non_events for content in contents)
    yield (
        "events",
        count(sum(each.events for each in contents)) + (f" and {others} non-events" if others else ""),
    )
    if not all(each.addition for each in contents):
        steps, hint = sum(each.steps for each in contents), ""
        if not steps and any(each.events and not each.addition for each in contents):
            hint = " (--step-range REGEX selects names of tw show annotation_breakdown that mark steps)"
        yield "steps", f"{count(steps)}{hint}"
        linked, with_op = report.coverage
        if linked is None or with_op is None:
            yield "coverage", "no GPU activities in these traces"
        else:
            yield "coverage", f"launch known for {ratio(linked)} of GPU time, operator for {ratio(with_op)}"
    fired = ", ".join(f"{rule} {count(rows)}" for rule, rows in report.quality.items())
    yield "data quality", fired or "no issues found"
    speed = f"{report.megabytes_per_s:.1f} MB/s"
    yield "time", f"{duration(report.seconds * 1e9)}, {speed} ({size(report.bytes)})"


def _reason(file: FileOutcome) -> str:
    """Why the file was not stored as it is, and what was lost."""
    content = file.content
    if content is None or file.state not in ("damaged", "repaired"):
        return file.reason or ""
    if not content.lost_bytes and content.lost_events is None:
        loss = f"truncated: the first {count(content.events)} events were stored"
    elif not content.lost_bytes and not content.lost_events:
        loss = "repaired invalid JSON; no data was lost"
    else:
        events = "unknown" if content.lost_events is None else count(content.lost_events)
        loss = f"lost {count(content.lost_bytes)} bytes (events: {events})"
    return f"{file.reason}; {loss}" if file.reason else loss


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
