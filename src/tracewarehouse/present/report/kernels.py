"""Kernels: which take the most time, who launched them, and how long launches take to start."""

from __future__ import annotations

from collections.abc import Sequence

from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.bars import Bar, Distribution, bar_chart, distribution_chart
from tracewarehouse.present.plot.lines import histogram
from tracewarehouse.present.plot.theme import color_key
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.by_step import kernels_by_step
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import Card, Figure, Section, Table
from tracewarehouse.present.report.kernel_limits import limits_tables, profile_statement
from tracewarehouse.present.report.tables import combined_ranks, first_rows
from tracewarehouse.present.report.text import distinct_labels, duration, label, percent

_MAX_BARS = 10
_BY_NAME = """
SELECT kind, name, sum(count)::BIGINT AS count, sum(sum_ns)::BIGINT AS ns, min(min_ns) AS low,
  median(p50_ns) AS median, max(p95_ns) AS p95, max(max_ns) AS high
FROM kernel_summary
GROUP BY kind, name
ORDER BY ns DESC, name
"""
_COMPILED = """
SELECT name, sum(gpu_sum_ns)::BIGINT AS ns, coalesce(any_value(source_ops), '') AS of
FROM compiled_kernels
GROUP BY name
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
    if data.has_rows("gpu_metrics"):
        caption = "Sampled GPU metrics by step"
        tables = (*tables, first_rows(data, "gpu_metrics", caption, order="rank, device, step NULLS FIRST"))
    if data.has_rows("kernel_gpu_metrics"):
        order = "sample_count DESC, rank, device, name"
        tables = (
            *tables,
            first_rows(data, "kernel_gpu_metrics", "Sampled GPU metrics by kernel", order=order),
        )
    if data.has_rows("compiled_kernels"):
        order = "gpu_sum_ns DESC, name, kernel_hash"
        tables = (*tables, combined_ranks(data, "compiled_kernels", "Compiled kernels", order))
    cards = (*_kernel_cards(data), *_compiled_cards(data), _operators_card(data), *_launch_cards(data))
    tables = (*tables, *limits_tables(data))
    return Section("kernels", "Kernels", _summary(data), cards, tables, statements=profile_statement(data))


def _summary(data: ReportData) -> str:
    row = data.row(
        f"""
        WITH named AS ({_BY_NAME})
        SELECT count(*) AS names, sum(count)::BIGINT AS count, sum(ns)::BIGINT AS ns,
          arg_max(name, ns) AS first, max(ns) AS first_ns
        FROM named
        """
    )
    by_step = kernels_by_step(data, "kind")
    time = f"{data.per_rank(row['ns'])} total {data.on_rank}"
    if by_step is not None:
        time = f"{duration(sum(by_step.mean_ns.values()))} of GPU time per step"
    return (
        f"{plural(row['count'], 'GPU activity')} with {plural(row['names'], 'distinct name')}, "
        f"{time}; {label(row['first'])} has the largest share, "
        f"{percent(row['first_ns'], row['ns'])}."
    )


def _compiled_cards(data: ReportData) -> list[Card]:
    """What torch.compile or Triton generated: its share of GPU time, and the kernel with the most time."""
    rows = data.rows(_COMPILED, "compiled_kernels")
    if not rows:
        return []
    shown = rows[:_MAX_BARS]
    bars = [
        Bar(
            name,
            row["ns"] / data.ranks,
            color_key("computation"),
            data.per_rank(row["ns"]),
            f"{row['name']}: {row['of'] or 'no operators in its name'}, {data.per_rank(row['ns'])} per rank",
        )
        for name, row in zip(distinct_labels([row["name"] for row in shown]), shown, strict=True)
    ]
    ns = sum(row["ns"] for row in rows)
    total = data.row("SELECT sum(sum_ns)::BIGINT AS ns FROM kernel_summary")["ns"]
    fused = f", fused from {rows[0]['of']}" if rows[0]["of"] else ""
    verb = "takes" if len(rows) == 1 else "take"
    text = (
        f"{plural(len(rows), 'kernel')} generated by torch.compile or Triton {verb} {percent(ns, total)} of"
        f" GPU time; {label(rows[0]['name'])} takes the most{fused}."
    )
    return [Card("Compiled kernels", text, (Figure("Time per rank", bar_chart(bars, PAGE)),))]


def _kernel_cards(data: ReportData) -> list[Card]:
    rows = data.rows(_BY_NAME)
    total = sum(row["ns"] for row in rows)
    shown = rows[:_MAX_BARS]
    labels = distinct_labels([row["name"] for row in shown])
    by_step = kernels_by_step(data, "kind", "name")
    if by_step is None:
        title, means = "Time per rank, colored by kind", [row["ns"] / data.ranks for row in shown]
        shares = [percent(row["ns"], total) for row in shown]
        texts, whole = [data.per_rank(row["ns"]) for row in shown], f"{data.on_rank}, of GPU time"
    else:
        title = "Time per step, mean of ranks and complete steps, colored by kind"
        means = [by_step.mean_ns.get((row["kind"], row["name"]), 0.0) for row in shown]
        shares = [percent(ns, by_step.period_ns) for ns in means]
        texts = [f"{duration(ns)}, {share}" for ns, share in zip(means, shares, strict=True)]
        whole = "per step, of the step"
    bars = [
        Bar(
            name,
            ns,
            color_key(row["kind"]),
            text,
            f"{row['name']}: {row['kind']}, {row['count']:,} times in the recording,"
            f" {duration(ns)} ({share}) {whole}",
        )
        for name, row, ns, share, text in zip(labels, shown, means, shares, texts, strict=True)
    ]
    share = percent(sum(row["ns"] for row in shown), total)
    text = f"The top {len(shown)} of {plural(len(rows), 'name')} take {share} of the total time."
    figure = Figure(title, bar_chart(bars, PAGE))
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
    by_step, shown = kernels_by_step(data, "op"), rows[:_MAX_BARS]
    if by_step is None:
        title, means = "GPU time per rank", [row["ns"] / data.ranks for row in shown]
        texts = [data.per_rank(row["ns"]) for row in shown]
    else:
        title, means = "GPU time per step", [by_step.mean_ns.get((row["name"],), 0.0) for row in shown]
        texts = [f"{duration(ns)}, {percent(ns, by_step.period_ns)}" for ns in means]
    bars = [
        Bar(
            label(row["name"] or f"({no_name})"),
            ns,
            "plain",
            text,
            f"{row['name'] or no_name}: {plural(row['count'], 'GPU activity')} in the recording,"
            f" {percent(row['ns'], total)} of GPU time",
        )
        for row, ns, text in zip(shown, means, texts, strict=True)
    ]
    first = next((row for row in rows if row["name"]), rows[0])
    text = f"{percent(first['ns'], total)} of GPU time was launched by {label(first['name'])}."
    return Card("By operator", text, (Figure(f"{title}, by operator", bar_chart(bars, PAGE)),))


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
