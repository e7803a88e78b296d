"""What is known of a run before any time is told, and what the page cannot know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracewarehouse.exact_text import rank_list
from tracewarehouse.render.text import timestamp
from tracewarehouse.report.content import Section, Table
from tracewarehouse.report.data import Asked
from tracewarehouse.report.tables import listed
from tracewarehouse.report.wording import and_list, part, plural, time
from tracewarehouse.runs.notices import notices

if TYPE_CHECKING:
    from tracewarehouse.runs.rows import RunInfo

Row = dict[str, Any]
_EPOCH_NS = 10**17
_CARRIES = {
    "gpu": "GPU rows",
    "launches": "launches",
    "shapes": "shapes of inputs",
    "stacks": "Python functions",
    "modules": "modules",
    "memory_events": "allocations",
    "collectives": "collectives",
}


def facts(asked: Asked, info: RunInfo) -> tuple[tuple[str, str], ...]:
    """Names and values for the head of the page."""
    run, ranks = info.run, info.ranks.rows()
    labels = ", ".join(f"{key}={value}" for key, value in run["labels"].items())
    shown = [
        ("Run", f"{run['run_id']}, version {run['version']}"),
        ("Labels", labels or "none"),
        ("GPUs", ", ".join(run["device_names"]) or "not told"),
        ("Ranks", _ranks(asked, run)),
        ("Framework", ", ".join(run["framework_versions"]) or "not told"),
        ("Recorded", _window(ranks)),
        ("Steps", _steps(ranks)),
        ("Events", f"{sum(row['events'] or 0 for row in ranks):,}"),
    ]
    return tuple(shown)


def _ranks(asked: Asked, run: Any) -> str:
    looked = list(asked.selected.ranks)
    size = run["world_size"]
    of = f" of {size}" if size else ""
    return f"{len(looked)}{of}" + (f" ({rank_list(looked)})" if size and len(looked) < size else "")


def _window(ranks: Sequence[Row]) -> str:
    starts = [row["start_ns"] for row in ranks if row["start_ns"] is not None]
    ends = [row["end_ns"] for row in ranks if row["end_ns"] is not None]
    if not starts or not ends:
        return "no event has a time"
    longest = max(
        row["end_ns"] - row["start_ns"] for row in ranks if None not in (row["start_ns"], row["end_ns"])
    )
    if min(starts) < _EPOCH_NS:
        return f"{time(longest)}; the trace does not say when"
    return f"{time(longest)} from {timestamp(min(starts))[:19]} UTC"


def _steps(ranks: Sequence[Row]) -> str:
    counts = sorted({row["steps"] or 0 for row in ranks})
    return "none" if counts == [0] else " or ".join(map(str, counts)) + " per rank"


def unknown(asked: Asked, info: RunInfo) -> tuple[str, ...]:
    """What the page cannot know, in sentences."""
    return tuple(_unknown(asked, info.ranks.rows()))


def _unknown(asked: Asked, ranks: Sequence[Row]) -> Iterator[str]:
    window = _window(ranks).partition(" from ")[0].partition(";")[0]
    yield f"What happened outside of the {window} that were recorded."
    for flag, what in _CARRIES.items():
        without = [row["rank"] for row in ranks if not row[flag]]
        if len(without) == len(ranks):
            yield f"No {what} are recorded, so what follows from them is not told."
        elif without:
            yield f"No {what} are recorded on ranks {rank_list(without)}."
    yield from _coverage(asked)
    for told in notices([asked.selected]):
        yield f"{told[0].upper()}{told[1:]}."
    yield from _quality(asked)


def _coverage(asked: Asked) -> Iterator[str]:
    if not asked.has("coverage"):
        return
    row = asked.one(
        "SELECT sum(gpu_ns)::BIGINT AS gpu, sum(launch_known_ns)::BIGINT AS known,"
        " sum(before_window_ns)::BIGINT AS before, sum(with_op_ns)::BIGINT AS op FROM coverage"
    )
    if row["known"] < row["gpu"]:
        yield (
            f"Who launched {part(row['gpu'] - row['known'], row['gpu'])} of the GPU time"
            f" ({part(row['before'], row['gpu'])} began before the recording did)."
        )
    if row["op"] < row["known"]:
        without = part(row["known"] - row["op"], row["gpu"])
        yield f"Which operator launched {without} of the GPU time: none was around the call."


def _quality(asked: Asked) -> Iterator[str]:
    rows = asked.rows(
        "SELECT severity, rule, sum(rows)::BIGINT AS rows FROM quality WHERE severity <> 'info'"
        " GROUP BY ALL ORDER BY severity, rule",
        "quality",
    )
    if rows:
        told = and_list([f"{plural(row['rows'], 'row')} of {row['rule']}" for row in rows])
        yield f"How far these mislead: {told}, see the last table."


def quality(asked: Asked) -> Section:
    """How good the data is, at the end of the page."""
    tables: list[Table] = []
    if asked.has("coverage"):
        tables.append(listed(asked, "coverage", "How much GPU time has a known launch and operator"))
    if asked.has("quality"):
        tables.append(listed(asked, "quality", "Data-quality rules that fired", order="severity, rule, rank"))
        rules = asked.one("SELECT count(DISTINCT rule) AS count FROM quality")["count"]
        said = f"{plural(rules, 'rule')} of data quality fired."
    else:
        said = "No rule of data quality fired."
    return Section("data", "Data quality", said, (), tuple(tables))
