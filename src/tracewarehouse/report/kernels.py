"""Kernels: which take the time, who launched them, how late they start."""

from __future__ import annotations

from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, Range, bars, ranges
from tracewarehouse.plot.lines import histogram
from tracewarehouse.plot.theme import meaning
from tracewarehouse.report.content import Part, Picture, Section
from tracewarehouse.report.data import Asked
from tracewarehouse.report.tables import folded
from tracewarehouse.report.wording import label, part, plural, time

TOP = 10

_BY_NAME = """
SELECT kind, name, sum(count)::BIGINT AS count, sum(sum_ns)::BIGINT AS ns, min(min_ns) AS least,
  median(p50_ns) AS middle, max(p95_ns) AS most, max(max_ns) AS longest
FROM kernel_summary
GROUP BY kind, name
ORDER BY ns DESC, name
"""


def kernels(asked: Asked) -> Section:
    """The section."""
    if not asked.has("kernel_summary"):
        why = asked.lacking("kernel_summary") or "no GPU rows recorded"
        return Section("kernels", "Kernels", f"There is nothing to tell of kernels: {why}.")
    tables = [folded(asked, "kernel_summary", "Kernels, copies and sets, by time", "sum_ns DESC, name")]
    tables.append(
        folded(
            asked,
            "op_summary",
            "Operators, by the GPU time that they launched themselves",
            "kernel_self_sum_ns DESC NULLS LAST, host_self_ns DESC, name",
        )
    )
    tables.append(
        folded(
            asked,
            "launch_summary",
            "Launches by the function called",
            "launches DESC, gpu_activities DESC, state, api",
        )
    )
    parts = (*_top(asked), _operators(asked), *_launches(asked))
    return Section("kernels", "Kernels", _sentence(asked), parts, tuple(tables))


def _sentence(asked: Asked) -> str:
    row = asked.one(
        f"""
        WITH named AS ({_BY_NAME})
        SELECT count(*) AS names, sum(count)::BIGINT AS count, sum(ns)::BIGINT AS ns,
          arg_max(name, ns) AS first, max(ns) AS first_ns
        FROM named
        """
    )
    return (
        f"{plural(row['count'], 'GPU row')} of {plural(row['names'], 'name')} took {asked.each(row['ns'])} "
        f"per rank, added up; {part(row['first_ns'], row['ns'])} of it is {label(row['first'])}."
    )


def _top(asked: Asked) -> list[Part]:
    rows = asked.rows(_BY_NAME)
    whole = sum(row["ns"] for row in rows)
    shown = rows[:TOP]
    taken = sum(row["ns"] for row in shown)
    by_time = [
        Bar(
            label(row["name"]),
            row["ns"] / asked.ranks,
            meaning(row["kind"]),
            asked.each(row["ns"]),
            f"{row['name']}: {row['kind']}, {row['count']:,} times, {asked.each(row['ns'])} per rank,"
            f" {part(row['ns'], whole)}",
        )
        for row in shown
    ]
    lengths = [
        Range(
            label(row["name"]),
            row["least"],
            row["middle"],
            row["longest"],
            row["most"],
            meaning(row["kind"]),
            time(row["middle"]),
            f"{row['name']}: {time(row['least'])} to {time(row['longest'])}, median {time(row['middle'])},"
            f" 95 % up to {time(row['most'])}",
        )
        for row in shown
    ]
    most = max(shown, key=lambda row: row["longest"] / max(row["middle"], 1))
    return [
        Part(
            "Most time",
            f"The first {len(shown)} of {plural(len(rows), 'name')} take {part(taken, whole)} of the time.",
            (Picture("Time per rank, by kind", bars(by_time, PAGE)),),
        ),
        Part(
            "How long a call takes",
            f"{label(most['name'])} varies the most: median {time(most['middle'])},"
            f" longest {time(most['longest'])}.",
            (Picture("Shortest to longest; thick: median to 95 %", ranges(lengths, "ns", PAGE)),),
        ),
    ]


def _operators(asked: Asked) -> Part:
    rows = asked.rows(
        """
        SELECT name, sum(kernel_self_sum_ns)::BIGINT AS ns, sum(kernel_self_count)::BIGINT AS count
        FROM op_summary GROUP BY name HAVING ns > 0 ORDER BY ns DESC, name
        """,
        "op_summary",
    )
    if not rows:
        return Part("By operator", "No operator is known to have launched GPU work.")
    whole = sum(row["ns"] for row in rows)
    shown = [
        Bar(
            label(row["name"] or "(no operator, or launch not known)"),
            row["ns"] / asked.ranks,
            "plain",
            asked.each(row["ns"]),
            f"{row['name'] or 'no operator, or launch not known'}: {row['count']:,} GPU rows,"
            f" {part(row['ns'], whole)}",
        )
        for row in rows[:TOP]
    ]
    named = next((row for row in rows if row["name"]), rows[0])
    said = f"Of the GPU time, {part(named['ns'], whole)} was launched by {label(named['name'])}."
    return Part(
        "By operator", said, (Picture("GPU time that operators launched, per rank", bars(shown, PAGE)),)
    )


def _launches(asked: Asked) -> list[Part]:
    row = asked.one(
        """
        SELECT sum(launches)::BIGINT AS launches, sum(short_kernels)::BIGINT AS short,
          sum(runtime_outliers)::BIGINT AS slow, sum(delay_outliers)::BIGINT AS late
        FROM launch_summary
        """,
        "launch_summary",
    )
    if not row["launches"]:
        return [Part("Launches", "No launches are recorded, so delays and short kernels are not known.")]
    said = (
        f"Of {row['launches']:,} launches, "
        f"{part(row['short'], row['launches'])} were of work shorter than its launch, "
        f"{part(row['late'], row['launches'])} started more than 100 µs after the call, "
        f"{part(row['slow'], row['launches'])} of the calls took over 50 µs."
    )
    delays = _spread(asked, "call_to_start_ns", "delay", "From the start of the call to the start on the GPU")
    lengths = _spread(asked, "kernel_ns", "length", "How many GPU rows are how long")
    short = asked.one(
        "SELECT count(*) AS count, count(*) FILTER (kernel_ns < 10000) AS short FROM launch_stats"
    )
    return [
        Part("Launches", said, delays),
        Part(
            "Short kernels",
            f"{part(short['short'], short['count'])} of GPU rows are shorter than 10 µs.",
            lengths,
        ),
    ]


def _spread(asked: Asked, column: str, what: str, title: str) -> tuple[Picture, ...]:
    values = f"SELECT {column} AS value FROM launch_stats WHERE {column} > 0"
    bins = asked.bins(values, "ns", "launch_stats")
    return (Picture(title, histogram(bins, what, "ns", PAGE)),) if bins else ()
