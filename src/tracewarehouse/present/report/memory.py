"""Memory: use over time, peaks, memcpy and memset bandwidth, and queue depth of streams."""

from __future__ import annotations

from collections.abc import Sequence

from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.bars import Bar, bar_chart
from tracewarehouse.present.plot.lines import line_chart
from tracewarehouse.present.plot.theme import format_short
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import Card, Figure, Section, Table
from tracewarehouse.present.report.tables import combined_ranks, first_rows
from tracewarehouse.present.report.text import label, percent

_MAX_BARS = 10
_CURVE_INTERVALS = 300  # of a curve; each contributes its highest and its last point
_PEAKS = """
SELECT rank, device_type, device, coalesce(peak_bytes, peak_net_bytes) AS peak, peak_bytes IS NULL AS is_net,
  peak_step, peak_at_ns, peak_reserved_bytes AS reserved
FROM memory_peak
ORDER BY device_type = 0, peak DESC, rank
"""


def memory_section(data: ReportData) -> Section:
    """The section."""
    tables: list[Table] = []
    cards: list[Card] = []
    if data.has_rows("memory_peak"):
        cards += [_usage_card(data), *_peak_cards(data)]
        order = "peak_bytes DESC NULLS LAST, rank"
        tables.append(first_rows(data, "memory_peak", "Peak memory of each device", order=order))
        order = "allocated_bytes DESC, rank"
        tables.append(first_rows(data, "memory_by_op", "Allocations by operator", order=order))
    if data.has_rows("memory_bandwidth_summary"):
        cards.append(_bandwidth_card(data))
        caption = "Memcpy and memset by direction"
        tables.append(combined_ranks(data, "memory_bandwidth_summary", caption, "bytes DESC, direction"))
    if data.has_rows("queue_length_summary"):
        cards.append(_queue_card(data))
        order = "queued_ns DESC NULLS LAST, rank"
        tables.append(first_rows(data, "queue_length_summary", "Queue depth of each stream", order=order))
    return Section("memory", "Memory and queues", _summary(data), tuple(cards), tuple(tables))


def peak_memory(data: ReportData) -> Row | None:
    """The device with the highest peak, GPUs first; None if no memory events were recorded."""
    rows = data.rows(_PEAKS, "memory_peak")
    return rows[0] if rows else None


def device_label(row: Row) -> str:
    """`rank 3, GPU 0`."""
    return f"rank {row['rank']}, " + ("CPU" if row["device_type"] == 0 else f"GPU {row['device']}")


def _bytes(value: float) -> str:
    return format_short(value, "bytes")


def _summary(data: ReportData) -> str:
    row = peak_memory(data)
    if row is None:
        return f"Memory use is unknown: {data.missing_reason('memory_peak') or 'no memory events'}."
    baseline = " above its initial level" if row["is_net"] else ""
    step = "" if row["peak_step"] is None else f", in step {row['peak_step']}"
    reserved = "" if not row["reserved"] else f"; {_bytes(row['reserved'])} were reserved"
    return (
        f"Allocated memory peaked at {_bytes(row['peak'])}{baseline} ({device_label(row)}){step}{reserved}."
    )


def _usage_card(data: ReportData) -> Card:
    """Memory over time of the device with the highest peak."""
    peak = peak_memory(data)
    assert peak is not None
    condition = " AND ".join(
        f"{key} IS NOT DISTINCT FROM {'NULL' if peak[key] is None else peak[key]}"
        for key in ("rank", "device_type", "device")
    )
    allocated = "net_bytes" if peak["is_net"] else "allocated_bytes"
    lines: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    for name, color, column in (("allocated", "head", allocated), ("reserved", "base", "reserved_bytes")):
        points = _curve(data, "memory_curve", condition, column)
        if any(value for _, value in points):
            lines[name] = (color, points)
    title = f"Memory use over time: {device_label(peak)}"
    figures = (Figure(title, line_chart(lines, "memory", "bytes", PAGE)),) if lines else ()
    changes = data.row("SELECT count(*) AS count FROM memory_curve", "memory_curve")["count"]
    return Card("Memory use", f"{changes:,} allocations and frees were recorded on all ranks.", figures)


def _peak_cards(data: ReportData) -> list[Card]:
    """The peaks of all devices of the same type."""
    peaks = data.rows(_PEAKS)
    rows = [row for row in peaks if (row["device_type"] == 0) == (peaks[0]["device_type"] == 0)]
    if len(rows) == 1:
        return []
    highest, lowest = rows[0], rows[-1]
    if _bytes(lowest["peak"]) == _bytes(highest["peak"]):
        where = "CPUs" if highest["device_type"] == 0 else "GPUs"
        text = f"The {where} of all {len(rows):,} ranks peak at {_bytes(highest['peak'])}."
        return [Card("Peak by device", text)]
    bars = [
        Bar(
            device_label(row),
            row["peak"],
            "plain",
            _bytes(row["peak"]),
            f"{device_label(row)}: {_bytes(row['peak'])}",
        )
        for row in rows[:_MAX_BARS]
    ]
    low, high = (f"{_bytes(row['peak'])} ({device_label(row)})" for row in (lowest, highest))
    title = "Highest peaks" if len(rows) > _MAX_BARS else "Peaks"
    figure = Figure(title, bar_chart(bars, PAGE))
    return [Card("Peak by device", f"Peaks range from {low} to {high}.", (figure,))]


def _curve(data: ReportData, name: str, condition: str, column: str) -> list[tuple[float, float]]:
    """A curve reduced to at most two points per interval of time: the highest and the last."""
    tie_break = "position" if name == "memory_curve" else "ts_ns"
    rows = data.rows(
        f"""
        WITH points AS (
          SELECT ts_ns - min(ts_ns) OVER () AS at_ns, {column} AS value,
            row_number() OVER (ORDER BY ts_ns, {tie_break}) AS point
          FROM {name} WHERE {condition} AND {column} IS NOT NULL
        ),
        intervals AS (
          SELECT *, floor({_CURVE_INTERVALS}.0 * at_ns / (1 + max(at_ns) OVER ())) AS bin FROM points
        ),
        selected AS (
          SELECT arg_max(point, value) AS highest, max(point) AS last FROM intervals GROUP BY bin
        )
        SELECT DISTINCT point, at_ns, value
        FROM points WHERE point IN (SELECT highest FROM selected UNION ALL SELECT last FROM selected)
        ORDER BY point
        """,
        name,
    )
    return [(row["at_ns"], row["value"]) for row in rows]


def _bandwidth_card(data: ReportData) -> Card:
    rows = data.rows(
        """
        SELECT direction, sum(count)::BIGINT AS count, sum(bytes)::BIGINT AS bytes,
          sum(active_ns)::BIGINT AS ns, sum(copy_ns)::BIGINT AS copy_ns
        FROM memory_bandwidth_summary GROUP BY direction ORDER BY ns DESC, direction
        """
    )
    timed = [row for row in rows if row["ns"]]
    if not timed:
        return Card("Memcpy and memset", "No memcpy or memset has both a duration and a byte count.")
    return Card("Memcpy and memset", _bandwidth_text(rows, timed), (_bandwidth_figure(data, timed),))


def _bandwidth_text(rows: Sequence[Row], timed: Sequence[Row]) -> str:
    operations = plural(sum(row["count"] for row in rows), "memory operation")
    moved = _bytes(sum(row["bytes"] for row in timed))
    return (
        f"{operations} (memcpy, memset), {moved} in total; {label(timed[0]['direction'])} took the longest."
    )


def _mean_bandwidth(row: Row) -> str:
    return format_short(row["bytes"] / max(row["copy_ns"], 1), "bytes_per_ns")


def _bandwidth_figure(data: ReportData, rows: Sequence[Row]) -> Figure:
    bars = [
        Bar(
            row["direction"],
            row["ns"] / data.ranks,
            "exposed_memory",
            f"{data.per_rank(row['ns'])} at {_mean_bandwidth(row)}",
            f"{row['direction']}: {row['count']:,} operations, {_bytes(row['bytes'])},"
            f" {data.per_rank(row['ns'])} per rank",
        )
        for row in rows[:_MAX_BARS]
    ]
    return Figure("Time per rank and mean bandwidth", bar_chart(bars, PAGE))


def _queue_card(data: ReportData) -> Card:
    """The stream with the most time in its queue."""
    rows = data.rows(
        "SELECT rank, device, stream, queued_ns, max_length, time_mean, waiting FROM queue_length_summary"
        " WHERE queued_ns IS NOT NULL ORDER BY queued_ns DESC, rank LIMIT 1"
    )
    if not rows:
        return Card("Queue depth", "No launches were recorded, so queue depths are unknown.")
    row = rows[0]
    stream = f"rank {row['rank']}, stream {row['stream']}"
    condition = f"rank = {row['rank']} AND device = {row['device']} AND stream = {row['stream']}"
    points = _curve(data, "queue_length", condition, "queue_length")
    spec = line_chart({"queued": ("head", points)}, "queued GPU activities", None, PAGE)
    mean = "" if row["time_mean"] is None else f" (mean {row['time_mean']:.1f})"
    text = (
        f"Fullest queue ({stream}): depth up to {row['max_length']:,}{mean};"
        f" not empty for {percent(row['waiting'] or 0, 1)} of the time."
    )
    return Card("Queue depth", text, (Figure(f"Queue depth over time: {stream}", spec),))
