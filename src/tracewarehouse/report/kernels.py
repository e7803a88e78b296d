"""Kernels: which take the most time, who launched them, and how long launches take to start."""

from __future__ import annotations

from collections.abc import Sequence

from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, Distribution, bar_chart, distribution_chart
from tracewarehouse.plot.lines import histogram
from tracewarehouse.plot.theme import color_key
from tracewarehouse.render.text import plural
from tracewarehouse.report.data import ReportData, Row
from tracewarehouse.report.document import Card, Figure, Section, Table
from tracewarehouse.report.tables import combined_ranks, first_rows
from tracewarehouse.report.text import distinct_labels, duration, label, percent

_MAX_BARS = 10
_BY_NAME = """
SELECT kind, name, sum(count)::BIGINT AS count, sum(sum_ns)::BIGINT AS ns, min(min_ns) AS low,
  median(p50_ns) AS median, max(p95_ns) AS p95, max(max_ns) AS high
FROM kernel_summary
GROUP BY kind, name
ORDER BY ns DESC, name
"""


def kernels_section(data: ReportData) -> Section:
    """The section."""
    if not data.has_rows("kernel_summary"):
        reason = data.missing_reason("kernel_summary") or "no GPU activities recorded"
        return Section("kernels", "Kernels", f"No kernel data: {reason}.")
    tables: tuple[Table, ...] = (
        combined_ranks(data, "kernel_summary", "Kernels, memcpy and memset by time", "sum_ns DESC, name"),
        combined_ranks(
            data,
            "op_summary",
            "Operators by the GPU time that they launched directly",
            "kernel_self_sum_ns DESC NULLS LAST, host_self_ns DESC, name",
        ),
        combined_ranks(
            data,
            "launch_summary",
            "Launches by runtime function",
            "launches DESC, gpu_activities DESC, state, api",
        ),
    )
    if data.has_rows("gpu_utilization"):
        caption = "GPU utilization by step"
        utilization = first_rows(data, "gpu_utilization", caption, order="rank, step NULLS FIRST")
        tables = (*tables, utilization)
    cards = (*_kernel_cards(data), _operators_card(data), *_launch_cards(data))
    return Section("kernels", "Kernels", _summary(data), cards, tables)


def _summary(data: ReportData) -> str:
    row = data.row(
        f"""
        WITH named AS ({_BY_NAME})
        SELECT count(*) AS names, sum(count)::BIGINT AS count, sum(ns)::BIGINT AS ns,
          arg_max(name, ns) AS first, max(ns) AS first_ns
        FROM named
        """
    )
    return (
        f"{plural(row['count'], 'GPU activity')} with {plural(row['names'], 'distinct name')}, "
        f"{data.per_rank(row['ns'])} total {data.on_rank}; {label(row['first'])} has the largest share, "
        f"{percent(row['first_ns'], row['ns'])}."
    )


def _kernel_cards(data: ReportData) -> list[Card]:
    rows = data.rows(_BY_NAME)
    total = sum(row["ns"] for row in rows)
    shown = rows[:_MAX_BARS]
    labels = distinct_labels([row["name"] for row in shown])
    bars = [
        Bar(
            name,
            row["ns"] / data.ranks,
            color_key(row["kind"]),
            data.per_rank(row["ns"]),
            f"{row['name']}: {row['kind']}, {row['count']:,} times,"
            f" {data.per_rank(row['ns'])} {data.on_rank}, {percent(row['ns'], total)}",
        )
        for name, row in zip(labels, shown, strict=True)
    ]
    share = percent(sum(row["ns"] for row in shown), total)
    text = f"The top {len(shown)} of {plural(len(rows), 'name')} take {share} of the total time."
    figure = Figure("Time per rank, colored by kind", bar_chart(bars, PAGE))
    return [Card("Top kernels", text, (figure,)), _durations_card(shown)]


def _durations_card(rows: Sequence[Row]) -> Card:
    labels = distinct_labels([row["name"] for row in rows])
    distributions = [
        Distribution(
            name,
            row["low"],
            row["median"],
            row["p95"],
            row["high"],
            color_key(row["kind"]),
            duration(row["median"]),
            f"{row['name']}: {duration(row['low'])} to {duration(row['high'])}, median"
            f" {duration(row['median'])}, 95th percentile {duration(row['p95'])}",
        )
        for name, row in zip(labels, rows, strict=True)
    ]
    most = max(rows, key=lambda row: row["high"] / max(row["median"], 1))
    median, maximum = duration(most["median"]), duration(most["high"])
    text = f"{label(most['name'])} varies most: median {median}, maximum {maximum}."
    chart = distribution_chart(distributions, "ns", PAGE)
    return Card("Duration per call", text, (Figure("Range; thick bar: median to 95th percentile", chart),))


def _operators_card(data: ReportData) -> Card:
    rows = data.rows(
        """
        SELECT name, sum(kernel_self_sum_ns)::BIGINT AS ns, sum(kernel_self_count)::BIGINT AS count
        FROM op_summary GROUP BY name HAVING ns > 0 ORDER BY ns DESC, name
        """,
        "op_summary",
    )
    if not rows:
        return Card("By operator", "No GPU work is attributed to an operator.")
    total, no_name = sum(row["ns"] for row in rows), "no operator or unknown launch"
    bars = [
        Bar(
            label(row["name"] or f"({no_name})"),
            row["ns"] / data.ranks,
            "plain",
            data.per_rank(row["ns"]),
            f"{row['name'] or no_name}: {plural(row['count'], 'GPU activity')}, {percent(row['ns'], total)}",
        )
        for row in rows[:_MAX_BARS]
    ]
    first = next((row for row in rows if row["name"]), rows[0])
    text = f"{percent(first['ns'], total)} of GPU time was launched by {label(first['name'])}."
    return Card("By operator", text, (Figure("GPU time per rank, by operator", bar_chart(bars, PAGE)),))


def _launch_cards(data: ReportData) -> list[Card]:
    row = data.row(
        """
        SELECT sum(launches)::BIGINT AS launches, sum(short_kernels)::BIGINT AS short,
          sum(runtime_outliers)::BIGINT AS slow, sum(delay_outliers)::BIGINT AS late
        FROM launch_summary
        """,
        "launch_summary",
    )
    if not row["launches"]:
        return [
            Card("Launches", "No launches were recorded, so launch delays and short kernels are unknown.")
        ]
    short, late, slow = (percent(row[name], row["launches"]) for name in ("short", "late", "slow"))
    text = (
        f"Of {row['launches']:,} launches, {short} ran shorter than their launch call, "
        f"{late} started more than 100 µs after the call, {slow} had a call longer than 50 µs."
    )
    delays = _histogram(
        data, "call_to_start_ns", "delay", "From the start of the call to the start on the GPU"
    )
    durations = _histogram(data, "kernel_ns", "duration", "Distribution of kernel durations")
    counts = data.row(
        "SELECT count(*) AS count, count(*) FILTER (kernel_ns < 10000) AS short FROM launch_stats"
    )
    share = f"{percent(counts['short'], counts['count'])} of GPU activities are shorter than 10 µs."
    return [Card("Launches", text, delays), Card("Short kernels", share, durations)]


def _histogram(data: ReportData, column: str, quantity: str, title: str) -> tuple[Figure, ...]:
    values = f"SELECT {column} AS value FROM launch_stats WHERE {column} > 0"
    bins = data.bins(values, "ns", "launch_stats")
    return (Figure(title, histogram(bins, quantity, "ns", PAGE)),) if bins else ()
