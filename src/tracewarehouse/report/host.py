"""Host: idle time by cause and by the operator that ended it, annotations, and runtime calls."""

from __future__ import annotations

from tracewarehouse.display_names import CATEGORIES, idle_cause
from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, bar_chart
from tracewarehouse.render.text import plural
from tracewarehouse.report.account import breakdown
from tracewarehouse.report.data import ReportData
from tracewarehouse.report.document import Card, Figure, Section, Table
from tracewarehouse.report.tables import combined_ranks, first_rows
from tracewarehouse.report.text import label, percent

_MAX_BARS = 10
_CALLS = """
SELECT name, sum(count)::BIGINT AS count, sum(sum_ns)::BIGINT AS ns,
  regexp_matches(name, '(?i)synchronize') AS blocks
FROM name_summary
WHERE NOT on_gpu AND (category LIKE '%runtime%' OR category LIKE '%driver%')
GROUP BY name
ORDER BY ns DESC, name
"""


def host_section(data: ReportData) -> Section:
    """The section."""
    cards = [*_idle_cards(data), *_host_cards(data), _annotations_card(data), _calls_card(data)]
    return Section("host", "Host", _summary(data), tuple(cards), tuple(_tables(data)))


def _host_cards(data: ReportData) -> list[Card]:
    """Without GPU activities: the operators with the most host time."""
    if breakdown(data) is not None:
        return []
    rows = data.rows(
        """
        SELECT name, sum(count)::BIGINT AS count, sum(host_self_ns)::BIGINT AS ns,
          sum(sum(host_self_ns)) OVER ()::BIGINT AS total_ns
        FROM op_summary WHERE name IS NOT NULL GROUP BY name HAVING ns > 0 ORDER BY ns DESC, name
        """,
        "op_summary",
    )
    if not rows:
        return []
    total = rows[0]["total_ns"]
    bars = [
        Bar(
            label(row["name"]),
            row["ns"] / total,
            "hidden_comm",
            f"{data.per_rank(row['ns'])}, {percent(row['ns'], total)}",
            f"{row['name']}: {row['count']:,} times, {data.per_rank(row['ns'])} self time {data.on_rank},"
            f" {percent(row['ns'], total)} of operator time",
        )
        for row in rows[:_MAX_BARS]
    ]
    text = f"{label(rows[0]['name'])} takes {percent(rows[0]['ns'], total)} of operator time on the host."
    title = "Self time per rank, without the operators inside; the full width is all operator time"
    return [Card("Operators", text, (Figure(title, bar_chart(bars, PAGE, high=1.0)),))]


def _tables(data: ReportData) -> list[Table]:
    tables: list[Table] = []
    if data.has_rows("idle_breakdown"):
        tables.append(combined_ranks(data, "idle_breakdown", "Idle time by cause", "idle_ns DESC, cause"))
    if data.has_rows("idle_intervals"):
        order = "idle_ns DESC, rank, start_ns"
        tables.append(first_rows(data, "idle_intervals", "Longest idle intervals", order=order))
    if breakdown(data) is None and data.has_rows("op_summary"):
        order = "host_self_ns DESC NULLS LAST, name"
        tables.append(combined_ranks(data, "op_summary", "Operators by host time", order))
    if data.has_rows("annotation_breakdown"):
        tables.append(combined_ranks(data, "annotation_breakdown", "Annotations", "sum_ns DESC, name"))
    return tables


def _summary(data: ReportData) -> str:
    account = breakdown(data)
    if account is None:
        return "Without GPU activities, idle time is unknown; host activity is shown below."
    total, idle = account.total_ns, sum(account.idle.values())
    return (
        f"GPUs are idle for {account.mean_text(idle)} ({percent(idle, total)}): "
        f"{percent(account.times.get('idle_dataloader', 0), total)} of the {account.whole} while the host"
        f" waits for data, {percent(account.times.get('idle_sync', 0), total)} after blocking calls."
    )


def _idle_cards(data: ReportData) -> list[Card]:
    account = breakdown(data)
    if account is None or not account.idle:
        return []
    idle, total = account.idle, sum(account.idle.values())
    bars = [
        Bar(
            idle_cause(name),
            ns / total,
            name,
            account.mean(ns),
            f"{CATEGORIES[name]}: {account.mean_text(ns)}, {percent(ns, total)} of idle time",
        )
        for name, ns in idle.items()
    ]
    largest = next(iter(idle))
    text = f"{percent(idle[largest], total)} of idle time: {idle_cause(largest)}."
    title = f"Idle time of the mean {account.whole}; the full width is all idle time"
    figure = Figure(title, bar_chart(bars, PAGE, high=1.0))
    return [Card("Idle time by cause", text, (figure,)), *_next_operator_cards(data)]


def _next_operator_cards(data: ReportData) -> list[Card]:
    """What launched the work after each idle interval: what the host was doing while the GPU waited."""
    rows = data.rows(
        """
        SELECT cause, coalesce(op_name, api, '(unknown launch)') AS name, count(*) AS count,
          sum(idle_ns)::BIGINT AS ns
        FROM idle_intervals GROUP BY ALL ORDER BY ns DESC, name, cause
        """,
        "idle_intervals",
    )
    if not rows:
        return []
    total = sum(row["ns"] for row in rows)
    bars = [
        Bar(
            label(row["name"]),
            row["ns"] / data.ranks,
            "plain",
            data.per_rank(row["ns"]),
            f"{row['name']}: ended {plural(row['count'], 'idle interval')} ({row['cause']}),"
            f" {data.per_rank(row['ns'])} {data.on_rank}",
        )
        for row in rows[:_MAX_BARS]
    ]
    text = f"{percent(rows[0]['ns'], total)} of idle time precedes work of {label(rows[0]['name'])}."
    figure = Figure("Idle time per rank, by the operator that ended it", bar_chart(bars, PAGE))
    return [Card("Idle time by next operator", text, (figure,))]


def _annotations_card(data: ReportData) -> Card:
    rows = data.rows(
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
        text = "No host annotations were recorded, so the phases of a step are unknown."
        return Card("Host annotations", text)
    bars = [
        Bar(
            label(row["name"]),
            row["ns"] / data.ranks,
            "idle_dataloader" if row["loads"] else "plain",
            data.per_rank(row["ns"]),
            f"{row['name']}: {row['count']:,} times, {data.per_rank(row['ns'])} {data.on_rank}",
        )
        for row in rows[:_MAX_BARS]
    ]
    loading = [row["ns"] for row in rows if row["loads"]]
    text = f"{label(rows[0]['name'])} takes the most time: {data.per_rank(rows[0]['ns'])} {data.on_rank}."
    if loading:
        text += f" Data loading: {data.per_rank(sum(loading))} {data.on_rank}."
    return Card("Host annotations", text, (Figure("Time per rank", bar_chart(bars, PAGE)),))


def _calls_card(data: ReportData) -> Card:
    rows = data.rows(_CALLS, "name_summary")
    if not rows:
        return Card("Runtime calls", "No GPU runtime calls were recorded.")
    blocking = [row for row in rows if row["blocks"]]
    bars = [
        Bar(
            label(row["name"]),
            row["ns"] / data.ranks,
            "idle_sync" if row["blocks"] else "plain",
            data.per_rank(row["ns"]),
            f"{row['name']}: {row['count']:,} times, {data.per_rank(row['ns'])} {data.on_rank}",
        )
        for row in rows[:_MAX_BARS]
    ]
    text = "No synchronizing calls were recorded."
    if blocking:
        calls = plural(sum(row["count"] for row in blocking), "synchronizing call")
        text = f"{calls}, {data.per_rank(sum(row['ns'] for row in blocking))} {data.on_rank}."
    figure = Figure("Time in runtime calls per rank; colored: synchronizing", bar_chart(bars, PAGE))
    return Card("Runtime calls", text, (figure,))
