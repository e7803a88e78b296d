"""What an ingest did, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracewarehouse.errors import TwError
from tracewarehouse.ingest.survey import TRACES
from tracewarehouse.render.values import count, duration, rank_list, ratio, size

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import Content, FileOutcome, IngestReport, RunOutcome

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
