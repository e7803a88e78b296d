"""Facts about a run: its configuration, the limits of its trace, and data quality."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracewarehouse.exact_text import rank_list
from tracewarehouse.present.render.text import plural, timestamp
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import Section, Table
from tracewarehouse.present.report.tables import first_rows
from tracewarehouse.present.report.text import and_list, duration, percent, sentence
from tracewarehouse.runs.rows import notices

if TYPE_CHECKING:
    from tracewarehouse.runs.rows import RunInfo

_MAX_LABELS = 4  # in the line below the title
_EPOCH_NS = 10**17  # earlier timestamps count from some start, not from 1970
_RECORDED_KINDS = {
    "gpu": "GPU activities",
    "launches": "launches",
    "shapes": "input shapes",
    "stacks": "Python stacks",
    "modules": "modules",
    "memory_events": "allocations",
    "collectives": "collectives",
}


def run_facts(data: ReportData, info: RunInfo) -> tuple[tuple[str, str], ...]:
    """Names and values for the top of the page."""
    run, ranks = info.run, info.ranks.rows()
    labels = ", ".join(f"{key}={value}" for key, value in run["labels"].items())
    return (
        ("Run", f"{run['run_id']}, version {run['version']}"),
        ("Labels", labels or "none"),
        ("GPUs", ", ".join(run["device_names"]) or "not recorded"),
        ("Ranks", _ranks(data, run)),
        ("Framework", ", ".join(run["framework_versions"]) or "not recorded"),
        ("Recorded", _profiling_window(ranks)),
        ("Steps", _steps(ranks)),
        ("Events", f"{sum(row['events'] or 0 for row in ranks):,}"),
    )


def run_line(data: ReportData, info: RunInfo) -> str:
    """The run in one line: devices, steps, labels and date."""
    run, ranks = info.run, info.ranks.rows()
    count = f"{len(data.selected.ranks)} × " if len(data.selected.ranks) > 1 else ""
    devices = and_list(run["device_names"])
    parts = [f"{count}{devices}" if devices else plural(len(data.selected.ranks), "rank")]
    parts.append(_ranks_missing(data, run))
    steps = _steps(ranks)
    steps = steps.removesuffix(" per rank")
    parts.append("" if steps == "none" else f"{steps} step{'' if steps == '1' else 's'}")
    parts += [f"{key}={value}" for key, value in list(run["labels"].items())[:_MAX_LABELS]]
    starts = [row["start_ns"] for row in ranks if row["start_ns"] is not None]
    if starts and min(starts) >= _EPOCH_NS:
        parts.append(timestamp(min(starts))[:10])
    return " · ".join(part for part in parts if part)


def _ranks_missing(data: ReportData, run: Any) -> str:
    world_size = run["world_size"]
    selected = len(data.selected.ranks)
    return f"{selected} of {world_size} ranks" if world_size and selected < world_size else ""


def _ranks(data: ReportData, run: Any) -> str:
    selected = list(data.selected.ranks)
    world_size = run["world_size"]
    of_world = f" of {world_size}" if world_size else ""
    listed = f" ({rank_list(selected)})" if world_size and len(selected) < world_size else ""
    return f"{len(selected)}{of_world}{listed}"


def _profiling_window(ranks: Sequence[Row]) -> str:
    recorded = _recorded_duration(ranks)
    if recorded is None:
        return "no event has a timestamp"
    start_ns = min(row["start_ns"] for row in ranks if row["start_ns"] is not None)
    if start_ns < _EPOCH_NS:
        return f"{recorded}; start time unknown"
    return f"{recorded} from {timestamp(start_ns)[:19]} UTC"


def _recorded_duration(ranks: Sequence[Row]) -> str | None:
    """The longest profiling window of a rank; None if no event has a timestamp."""
    windows = [
        row["end_ns"] - row["start_ns"] for row in ranks if None not in (row["start_ns"], row["end_ns"])
    ]
    return duration(max(windows)) if windows else None


def _steps(ranks: Sequence[Row]) -> str:
    counts = sorted({row["steps"] or 0 for row in ranks})
    return "none" if counts == [0] else " or ".join(map(str, counts)) + " per rank"


def limits_section(data: ReportData, info: RunInfo) -> Section:
    """What the trace does not show, at the end of the page."""
    ranks = info.ranks.rows()
    recorded = _recorded_duration(ranks)
    summary = "No event has a timestamp."
    if recorded is not None:
        summary = f"Only {recorded} were recorded; activity outside this window is unknown."
    statements = (
        *_missing_kinds(ranks),
        *_coverage(data),
        *(_sentence(text, data.run) for text in notices([data.selected])),
        *_quality_issues(data),
        *(sentence(f"{reason}: {and_list(names)}") for reason, names in data.outdated().items()),
    )
    return Section("limits", "Not visible in this trace", summary, statements=statements)


def _sentence(text: str, run: str) -> str:
    """A notice as a sentence; the name of the run stays as it is."""
    return f"{text}." if text.startswith(run) else sentence(text)


def _missing_kinds(ranks: Sequence[Row]) -> Iterator[str]:
    for flag, kind in _RECORDED_KINDS.items():
        without = [row["rank"] for row in ranks if not row[flag]]
        if len(without) == len(ranks):
            yield f"No {kind} were recorded; results that need them are missing."
        elif without:
            yield f"No {kind} were recorded on ranks {rank_list(without)}."


def _coverage(data: ReportData) -> Iterator[str]:
    if not data.has_rows("coverage"):
        return
    row = data.row(
        "SELECT sum(gpu_ns)::BIGINT AS gpu, sum(launch_known_ns)::BIGINT AS known,"
        " sum(before_window_ns)::BIGINT AS before, sum(with_op_ns)::BIGINT AS op,"
        " sum(graph_ns - graph_attributed_ns)::BIGINT AS graph FROM coverage"
    )
    if row["known"] < row["gpu"]:
        unknown, before = (percent(ns, row["gpu"]) for ns in (row["gpu"] - row["known"], row["before"]))
        yield f"The launch is unknown for {unknown} of GPU time ({before} started before the recording)."
    if row["op"] < row["known"]:
        unknown = percent(row["known"] - row["op"], row["gpu"])
        graph = f", of which {percent(row['graph'], row['gpu'])} in graph launches" if row["graph"] else ""
        yield f"The operator is unknown for {unknown} of GPU time{graph}."


def _quality_issues(data: ReportData) -> Iterator[str]:
    rows = data.rows(
        "SELECT severity, rule, sum(rows)::BIGINT AS rows FROM quality"
        " WHERE severity <> 'info' AND rule <> 'ranks_missing' GROUP BY ALL ORDER BY severity, rule",
        "quality",
    )
    if rows:
        issues = and_list([f"{plural(row['rows'], 'row')} of {row['rule']}" for row in rows])
        yield f"Data quality: {issues} (see the table of data-quality issues)."


def quality_section(data: ReportData) -> Section:
    """Coverage and data-quality issues."""
    tables: list[Table] = []
    summary = "No data-quality issues."
    if data.has_rows("coverage"):
        tables.append(first_rows(data, "coverage", "GPU time with a known launch and operator"))
    if data.has_rows("quality"):
        tables.append(first_rows(data, "quality", "Data-quality issues", order="severity, rule, rank"))
        rules = data.row("SELECT count(DISTINCT rule) AS count FROM quality")["count"]
        summary = f"{plural(rules, 'data-quality issue')}."
    return Section("data", "Data quality", summary, (), tuple(tables))
