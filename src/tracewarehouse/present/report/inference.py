"""Inference: steps of a server by phase with tokens per second, and what its graphs replay."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import Section, Tile
from tracewarehouse.present.report.tables import first_rows
from tracewarehouse.present.report.text import duration, percent

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
    for row in _phases(data):
        if row["tokens_per_s"]:
            note = f"median of {plural(row['steps'], 'step')}"
            if row["busy_tokens_per_s"]:
                note += f"; {row['busy_tokens_per_s']:,.0f} per second of busy GPU"
            yield Tile(f"{row['phase']} tokens/s", f"{row['tokens_per_s']:,.0f}", note, "inference")


def inference_section(data: ReportData) -> Iterator[Section]:
    """The section; none without steps of a server."""
    phases = _phases(data)
    if phases:
        table = first_rows(data, "inference_steps", "Steps of the server")
        summary = "Steps that the server marked, as seen by one worker; it does not record arrival times."
        statements = tuple(map(_statement, phases))
        yield Section("inference", "Inference", summary, tables=(table,), statements=statements)


def graphs_section(data: ReportData) -> Iterator[Section]:
    """The section; none without graph launches."""
    if data.has_rows("graph_summary"):
        row, count = data.row(_ON_GRAPHS, "coverage"), data.row(_GRAPHS)
        launches = plural(count["replays"], "graph launch", "graph launches")
        verb = "replays" if count["replays"] == 1 else "replay"
        share = percent(row["graph_ns"], row["gpu_ns"])
        summary = f"{launches} of {plural(count['shapes'], 'shape')} {verb} {share} of GPU time."
        table = first_rows(data, "graph_summary", "Graphs by GPU time")
        yield Section("graphs", "Graphs", summary, tables=(table,), statements=(_attribution(data, row),))


def _phases(data: ReportData) -> list[Row]:
    return data.rows(_PHASES) if data.has_rows("inference_steps") else []


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
        f" tw derive graphs {shlex.quote(data.run)} finds them in a trace of the capture."
    )
