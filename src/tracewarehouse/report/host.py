"""Host: why GPUs stood idle and what the host did meanwhile, data loading, calls that block."""

from __future__ import annotations

from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, bars
from tracewarehouse.report.content import Part, Picture, Section, Table
from tracewarehouse.report.data import Asked
from tracewarehouse.report.overview import shares
from tracewarehouse.report.tables import folded, listed
from tracewarehouse.report.wording import MEANINGS, label, part, plural

TOP = 10
_CALLS = """
SELECT name, sum(count)::BIGINT AS count, sum(sum_ns)::BIGINT AS ns,
  regexp_matches(name, '(?i)synchronize') AS blocks
FROM name_summary
WHERE NOT on_gpu AND (category LIKE '%runtime%' OR category LIKE '%driver%')
GROUP BY name
ORDER BY ns DESC, name
"""


def host(asked: Asked) -> Section:
    """The section."""
    parts = [*_idle(asked), *_annotations(asked), _calls(asked)]
    tables: list[Table] = []
    if asked.has("idle_breakdown"):
        tables.append(folded(asked, "idle_breakdown", "Idle time by cause", "idle_ns DESC, cause"))
    if asked.has("idle_intervals"):
        tables.append(
            listed(asked, "idle_intervals", "The longest gaps", order="idle_ns DESC, rank, start_ns")
        )
    if asked.has("annotation_breakdown"):
        tables.append(folded(asked, "annotation_breakdown", "Annotations", "sum_ns DESC, name"))
    return Section("host", "Host", _sentence(asked), tuple(parts), tuple(tables))


def _sentence(asked: Asked) -> str:
    told = shares(asked)
    if not told:
        return "Without GPU rows idle time is not known; what the host did is below."
    whole = sum(told.values())
    idle = {name: ns for name, ns in told.items() if name.startswith("idle_")}
    data = told.get("idle_dataloader", 0)
    blocked = told.get("idle_sync", 0)
    return (
        f"GPUs stood idle for {asked.each(sum(idle.values()))} per rank ({part(sum(idle.values()), whole)}): "
        f"{part(data, whole)} of the time while the host waited for data,"
        f" {part(blocked, whole)} after blocking calls."
    )


def _idle(asked: Asked) -> list[Part]:
    idle = {name: ns for name, ns in shares(asked).items() if name.startswith("idle_")}
    whole = sum(idle.values())
    if not whole:
        return []
    shown = [
        Bar(
            MEANINGS[name].removeprefix("idle: "),
            ns / asked.ranks,
            name,
            asked.each(ns),
            f"{MEANINGS[name]}: {asked.each(ns)} per rank, {part(ns, whole)} of idle time",
        )
        for name, ns in idle.items()
    ]
    first = next(iter(idle))
    said = f"{part(idle[first], whole)} of idle time: {MEANINGS[first].removeprefix('idle: ')}."
    causes = Part("Idle by cause", said, (Picture("Idle time per rank", bars(shown, PAGE)),))
    return [causes, *_meanwhile(asked)]


def _meanwhile(asked: Asked) -> list[Part]:
    """What launched the work that ended gaps: where the host came from when the GPU waited for it."""
    rows = asked.rows(
        """
        SELECT cause, coalesce(op_name, api, '(launch not known)') AS name, count(*) AS count,
          sum(idle_ns)::BIGINT AS ns
        FROM idle_intervals GROUP BY ALL ORDER BY ns DESC, name, cause
        """,
        "idle_intervals",
    )
    whole = sum(row["ns"] for row in rows)
    shown = [
        Bar(
            label(row["name"]),
            row["ns"] / asked.ranks,
            "plain",
            asked.each(row["ns"]),
            f"{row['name']}: ended {row['count']:,} gaps ({row['cause']}), {asked.each(row['ns'])} per rank",
        )
        for row in rows[:TOP]
    ]
    if not shown:
        return []
    said = f"{part(rows[0]['ns'], whole)} of idle time ended with work of {label(rows[0]['name'])}."
    return [
        Part(
            "What ended the gaps",
            said,
            (Picture("Idle time by the operator that ended it", bars(shown, PAGE)),),
        )
    ]


def _annotations(asked: Asked) -> list[Part]:
    rows = asked.rows(
        """
        SELECT name, sum(count)::BIGINT AS count, sum(union_ns)::BIGINT AS ns,
          regexp_matches(name, '(?i)data.?loader|load_batch') AS loads
        FROM annotation_breakdown
        WHERE NOT on_gpu AND NOT starts_with(coalesce(name, ''), 'ProfilerStep')
        GROUP BY name ORDER BY ns DESC, name
        """,
        "annotation_breakdown",
    )
    if not rows:
        return [Part("Annotations", "The host set no annotations, so phases of a step are not told.")]
    shown = [
        Bar(
            label(row["name"]),
            row["ns"] / asked.ranks,
            "idle_dataloader" if row["loads"] else "plain",
            asked.each(row["ns"]),
            f"{row['name']}: {row['count']:,} times, {asked.each(row['ns'])} per rank",
        )
        for row in rows[:TOP]
    ]
    loads = [row for row in rows if row["loads"]]
    said = f"{label(rows[0]['name'])} lasted the longest: {asked.each(rows[0]['ns'])} per rank."
    if loads:
        said += f" Loading data: {asked.each(sum(row['ns'] for row in loads))} per rank."
    return [Part("Annotations of the host", said, (Picture("Time inside, per rank", bars(shown, PAGE)),))]


def _calls(asked: Asked) -> Part:
    rows = asked.rows(_CALLS, "name_summary")
    if not rows:
        return Part("Runtime calls", "No calls of a GPU runtime are recorded.")
    blocking = [row for row in rows if row["blocks"]]
    shown = [
        Bar(
            label(row["name"]),
            row["ns"] / asked.ranks,
            "idle_sync" if row["blocks"] else "plain",
            asked.each(row["ns"]),
            f"{row['name']}: {row['count']:,} times, {asked.each(row['ns'])} per rank",
        )
        for row in rows[:TOP]
    ]
    said = (
        f"{plural(sum(row['count'] for row in blocking), 'call')} waited for the GPU, "
        f"{asked.each(sum(row['ns'] for row in blocking))} per rank."
        if blocking
        else "No call that waits for the GPU is recorded."
    )
    return Part(
        "Calls of the GPU runtime",
        said,
        (Picture("Time in calls per rank; coloured: they block", bars(shown, PAGE)),),
    )
