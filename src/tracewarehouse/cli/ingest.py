"""`tw ingest`: files and folders into the warehouse, with bars while it runs and a summary at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click

from tracewarehouse.cli.session import Duration, Pair, Session, examples, output_options, pass_session
from tracewarehouse.errors import TwError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.render.text import count, duration, ratio, size

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import Content, FileOutcome, IngestReport, RunOutcome
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
    type=Duration(),
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


TOLD_ONE_BY_ONE = ("refused", "damaged", "repaired", "pending", "skipped")


def notices(report: IngestReport) -> Iterator[str]:
    """A line for each file that is not simply stored, with its hint; then what concerns whole runs."""
    for file in report.files:
        if file.state in TOLD_ONE_BY_ONE:
            yield f"{file.state}: {file.path}{f': {what}' if (what := _what(file)) else ''}"
            if file.hint:
                yield f"hint: {file.hint}"
        yield from (f"note: {file.path}: {note}" for note in file.notes)
    if report.files and len(report.of("skipped")) == len(report.files):
        from tracewarehouse.ingest.survey import TRACES

        yield f"hint: {TRACES}"
    yield from (f"note: {note}" for note in report.notes)
    for run in report.runs:
        yield from (f"quality: run {run.run}: {rule}: {what}" for rule, what in run.rules)


def failed(report: IngestReport) -> TwError | None:
    """The error of an ingest that stored nothing, though it was given something to store."""
    if report.exit_code != 1:
        return None
    refused = report.of("refused")
    if report.strict:
        return TwError("--strict: not every file is whole, nothing was stored")
    return TwError(f"nothing was stored: {len(refused)} refused")


def summary(report: IngestReport) -> str:
    """Counts, coverage, quality, speed, and what to look at next."""
    lines = [_headline(report)]
    lines += [f"  run {run.run}  {_state(run)}" for run in report.runs]
    facts = dict(_facts(report))
    width = max(map(len, facts), default=0)
    lines += [f"  {name.ljust(width)}  {text}" for name, text in facts.items()]
    if report.next_commands:
        lines += ["next", *(f"  {command}" for command in report.next_commands)]
    return "\n".join(lines) + "\n"


def _headline(report: IngestReport) -> str:
    stored, same = len(report.stored), len(report.of("same"))
    kept = f"{same} already stored, unchanged" if same else ""
    if not stored:
        return f"nothing written: {kept or 'no trace was taken in'}"
    parts = [f"{stored} rank{'s' if stored != 1 else ''} taken in"]
    parts += [f"{len(files)} {state}" for state in ("refused", "damaged") if (files := report.of(state))]
    return ", ".join([*parts, kept] if kept else parts)


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
    yield "steps", count(sum(content.steps for content in contents))
    linked, with_op = report.coverage
    if linked is not None and with_op is not None:
        yield "coverage", f"{ratio(linked)} of GPU time has its launch, {ratio(with_op)} its operator"
    else:
        yield "coverage", "no GPU time in these traces"
    fired = ", ".join(f"{rule} {count(rows)}" for rule, rows in report.quality.items())
    yield "quality", fired or "nothing to tell"
    speed = f"{report.megabytes_per_s:.1f} MB/s of JSON"
    yield "time", f"{duration(report.seconds * 1e9)}, {speed} ({size(report.bytes)})"


def _what(file: FileOutcome) -> str:
    content = file.content
    if content is None or file.state not in ("damaged", "repaired"):
        return file.reason or ""
    return "; ".join(part for part in (file.reason, _lost(content)) if part)


def _lost(content: Content) -> str:
    if not content.lost_bytes and content.lost_events is None:
        return f"ends too early: the {count(content.events)} events up to there are stored"
    if not content.lost_bytes and not content.lost_events:
        return "not quite JSON, and nothing was lost"
    events = "unknown" if content.lost_events is None else count(content.lost_events)
    return f"lost {count(content.lost_bytes)} bytes (events: {events})"
