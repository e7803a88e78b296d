"""The host: idle GPU time by cause, the training thread, annotations, calls, CUDA graphs and served steps."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from tracewarehouse.display_names import CATEGORIES, idle_cause
from tracewarehouse.present.plot.charts import Bar
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import ReportData, Row, breakdown
from tracewarehouse.present.report.document import (
    Card,
    Command,
    Listing,
    Section,
    Tile,
    bar_card,
    distinct_labels,
    duration,
    label,
    percent,
    tables,
)
from tracewarehouse.present.report.timeline import HOST_CATEGORIES, flame_view

_MAX_BARS = 10
_CALLS = """
SELECT name, sum(count)::BIGINT AS count, sum(sum_ns)::BIGINT AS ns,
  regexp_matches(name, '(?i)synchronize') AS marked
FROM name_summary
WHERE NOT on_gpu AND (category LIKE '%runtime%' OR category LIKE '%driver%')
GROUP BY name
ORDER BY ns DESC, name
"""
_TABLES = (
    Listing("idle_breakdown", "Idle time by cause", "idle_ns DESC, cause", is_combined=True),
    Listing("idle_intervals", "Longest idle intervals", "idle_ns DESC, rank, start_ns"),
    Listing("host_account", "Training thread by step and name", "self_ns DESC, category, name, rank, step"),
)
_OPERATORS = Listing("op_summary", "Operators by host time", is_combined=True)
_PROFILER_TABLES = (
    Listing("key_averages", "Operators and calls, as PyTorch's key_averages() counts them", is_combined=True),
    Listing("annotation_breakdown", "Annotations", "sum_ns DESC, name", is_combined=True),
)


def host_section(data: ReportData) -> Section:
    """The section; its flame view and PyTorch's table are of the rank and step of the worst finding."""
    rank, step = data.place
    rank = data.selected.ranks[0] if rank is None else rank
    data.result_as("key_averages", "key_averages", [rank])
    cards = [*_idle_cards(data), *_thread_cards(data), *_annotations_card(data), *_calls_card(data)]
    view = flame_view(data, rank, step)
    operators = (_OPERATORS,) if breakdown(data) is None else ()
    printed = tables(data, *_TABLES, *operators, *_PROFILER_TABLES)
    return Section("host", "Host", _summary(data), cards, printed, flames=() if view is None else (view,))


def _thread_cards(data: ReportData) -> list[Card]:
    """What the training threads run: `host_account` by category and by name."""
    if not data.has_rows("host_account"):
        return []
    parts = data.rows(
        """
        SELECT category, sum(self_ns)::BIGINT AS ns,
          (SELECT greatest(count(DISTINCT (rank, step)), 1) FROM host_account) AS steps,
          (SELECT bool_or(step IS NOT NULL) FROM host_account) AS of_step
        FROM host_account GROUP BY category ORDER BY ns DESC, category
        """
    )
    names = data.rows(
        f"""
        SELECT category, name, sum(count)::BIGINT AS count, sum(self_ns)::BIGINT AS ns
        FROM host_account WHERE category <> 'unrecorded'
        GROUP BY category, name ORDER BY ns DESC, category, name LIMIT {_MAX_BARS}
        """
    )
    total, count = sum(row["ns"] for row in parts), parts[0]["steps"]
    unit = "step" if parts[0]["of_step"] else "recording"

    def bar(row: Row, name: str, text: str) -> Bar:
        mean, share = duration(row["ns"] / count), percent(row["ns"], total)
        color = HOST_CATEGORIES[row["category"]][0]
        return Bar(name, row["ns"] / total, color, f"{mean}, {share}", f"{text}: {mean} per {unit}, {share}")

    kinds = [HOST_CATEGORIES[row["category"]][1] for row in parts]
    bars = [bar(row, kind, kind) for row, kind in zip(parts, kinds, strict=True)]
    title = f"Time of the mean {unit}; the full width is all of it"
    first = kinds[0][:1].upper() + kinds[0][1:]
    text = f"{first}: {percent(parts[0]['ns'], total)} of the {unit}, which takes {duration(total / count)}."
    cards = [bar_card("Training thread", text, title, bars, high=1.0)]
    if names:
        labels = distinct_labels([row["name"] for row in names])
        bars = [
            bar(row, text, f"{row['name']} ({HOST_CATEGORIES[row['category']][1]}), {row['count']:,} times")
            for row, text in zip(names, labels, strict=True)
        ]
        text = f"{labels[0]} has the most self time: {percent(names[0]['ns'], total)} of the {unit}."
        title = f"Self time of the mean {unit}; the full width is the {unit}"
        cards.append(bar_card("Training thread by name", text, title, bars, high=1.0))
    return cards


def _summary(data: ReportData) -> str:
    account = breakdown(data)
    if account is None:
        return "No GPU activities were recorded: below is what the training thread runs."
    total, idle = account.total_ns, sum(account.idle.values())
    if not idle:
        return f"No GPU is idle in the {account.whole}: the host always launches in time."
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
    bars = []
    for name, ns in idle.items():
        description = f"{CATEGORIES[name]}: {account.mean_text(ns)}, {percent(ns, total)} of idle time"
        bars.append(Bar(idle_cause(name), ns / total, name, account.mean(ns), description))
    largest = next(iter(idle))
    text = f"{percent(idle[largest], total)} of idle time: {idle_cause(largest)}."
    title = f"Idle time of the mean {account.whole}; the full width is all idle time"
    return [bar_card("Idle time by cause", text, title, bars, high=1.0), *_next_operator_cards(data)]


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
    bars = _time_bars(
        data, rows, lambda row: f"ended {plural(row['count'], 'idle interval')} ({row['cause']})"
    )
    share = f"{percent(rows[0]['ns'], total)} of idle time in the recording"
    text = f"{share} precedes work of {label(rows[0]['name'])}."
    title = "Idle time per rank in the recording, by the operator that ended it"
    return [bar_card("Idle time by next operator", text, title, bars)]


def _time_bars(
    data: ReportData,
    rows: Sequence[Row],
    counted: Callable[[Row], str] = lambda row: f"{row['count']:,} times",
    marked: str = "",
) -> list[Bar]:
    """The time per rank of the first rows; those that are `marked` have the color of that category."""
    bars = []
    for row in rows[:_MAX_BARS]:
        time, color = data.per_rank(row["ns"]), marked if marked and row["marked"] else "plain"
        description = f"{row['name']}: {counted(row)}, {time} {data.on_rank}"
        bars.append(Bar(label(row["name"]), row["ns"] / data.ranks, color, time, description))
    return bars


def _annotations_card(data: ReportData) -> Iterator[Card]:
    rows = data.rows(
        """
        SELECT name, sum(count)::BIGINT AS count, sum(union_ns)::BIGINT AS ns,
          regexp_matches(name, '(?i)data.?loader|load_batch') AS marked
        FROM annotation_breakdown
        WHERE NOT on_gpu AND NOT regexp_matches(coalesce(name, ''), '^ProfilerStep| step_num=')
        GROUP BY name ORDER BY ns DESC, name
        """,
        "annotation_breakdown",
    )
    if not rows:
        return
    caption = "Time per rank in the recording"
    loading = [row["ns"] for row in rows if row["marked"]]
    text = f"{label(rows[0]['name'])} takes the most time: {data.per_rank(rows[0]['ns'])} {data.on_rank}."
    if loading:
        text += f" Data loading: {data.per_rank(sum(loading))} {data.on_rank}."
    yield bar_card("Host annotations", text, caption, _time_bars(data, rows, marked="idle_dataloader"))


def _calls_card(data: ReportData) -> Iterator[Card]:
    rows = data.rows(_CALLS, "name_summary")
    if not rows:
        return
    blocking = [row for row in rows if row["marked"]]
    text = "No synchronizing calls were recorded."
    if blocking:
        calls = plural(sum(row["count"] for row in blocking), "synchronizing call")
        text = f"{calls}, {data.per_rank(sum(row['ns'] for row in blocking))} {data.on_rank}."
    title = "Time in runtime calls per rank in the recording; colored: synchronizing"
    yield bar_card("Runtime calls", text, title, _time_bars(data, rows, marked="idle_sync"))


_PHASES = """
SELECT
  phase,
  count(*) AS steps,
  sum(requests)::BIGINT AS requests,
  sum(coalesce(prefill_tokens, 0) + coalesce(decode_tokens, 0))::BIGINT AS tokens,
  median(gpu_ns) AS gpu_ns,
  median(tokens_per_s) AS tokens_per_s,
  median(busy_tokens_per_s) AS busy_tokens_per_s
FROM inference_steps
WHERE rank = (SELECT min(rank) FROM inference_steps)
GROUP BY phase
ORDER BY steps DESC, phase
"""
_ON_GRAPHS = """
SELECT sum(gpu_ns)::BIGINT AS gpu_ns, sum(graph_ns)::BIGINT AS graph_ns,
  sum(graph_attributed_ns)::BIGINT AS attributed_ns
FROM coverage
"""
_GRAPHS = "SELECT sum(replays)::BIGINT AS replays, count(DISTINCT shape) AS shapes FROM graph_summary"


def inference_tiles(data: ReportData) -> Iterator[Tile]:
    """A tile per phase with its tokens per second; none without steps of a server."""
    for row in data.rows(_PHASES, "inference_steps"):
        if row["tokens_per_s"]:
            note = f"median of {plural(row['steps'], 'step')}"
            if row["busy_tokens_per_s"]:
                note += f"; {row['busy_tokens_per_s']:,.0f} per second of busy GPU"
            yield Tile(f"{row['phase']} tokens/s", f"{row['tokens_per_s']:,.0f}", note, "inference")


def inference_section(data: ReportData) -> Iterator[Section]:
    """The section; none without steps of a server."""
    phases = data.rows(_PHASES, "inference_steps")
    if phases:
        printed = tables(data, Listing("inference_steps", "Steps of the server"))
        summary = "Steps that the server marked, as seen by one worker; it does not record arrival times."
        statements = tuple(map(_statement, phases))
        yield Section("inference", "Inference", summary, tables=printed, statements=statements)


def graphs_section(data: ReportData) -> Iterator[Section]:
    """The section; none without graph launches."""
    if data.has_rows("graph_summary"):
        row, count = data.row(_ON_GRAPHS, "coverage"), data.row(_GRAPHS)
        launches = plural(count["replays"], "graph launch", "graph launches")
        verb = "replays" if count["replays"] == 1 else "replay"
        share = percent(row["graph_ns"], row["gpu_ns"])
        summary = f"{launches} of {plural(count['shapes'], 'shape')} {verb} {share} of GPU time."
        printed = tables(data, Listing("graph_summary", "Graphs by GPU time"))
        find = Command(
            f"tw derive graphs {shlex.quote(data.run)}", "finding operators in a trace of the capture"
        )
        commands = () if row["attributed_ns"] else (find,)
        statements = (_attribution(data, row),)
        yield Section("graphs", "Graphs", summary, tables=printed, statements=statements, commands=commands)


def _statement(row: Row) -> str:
    gpu = "" if row["gpu_ns"] is None else f", median GPU time {duration(row['gpu_ns'])}"
    requests = "" if row["requests"] is None else f" with {plural(row['requests'], 'request')}"
    tokens = f" and {plural(row['tokens'], 'token')}" if row["tokens"] else ""
    return f"{plural(row['steps'], row['phase'] + ' step')}{requests}{tokens}{gpu}."


def _attribution(data: ReportData, row: Row) -> str:
    """How much of the replayed time has an operator."""
    if row["attributed_ns"]:
        share = percent(row["attributed_ns"], row["graph_ns"])
        unsure = data.row("SELECT bool_or(how = 'by_order') AS by_order FROM graph_summary")["by_order"]
        order = " By order only where kernels are not named in the capture: not certain." if unsure else ""
        return f"The operator is known for {share} of it, from the capture of the graph.{order}"
    return (
        "Its operators are not known: they were recorded when the graph was captured."
        " A command finds them in a trace of the capture."
    )
