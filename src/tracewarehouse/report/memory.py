"""Memory: how much was in use, the peak, copies and how fast they were, how long queues were."""

from __future__ import annotations

from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, bars
from tracewarehouse.plot.lines import series
from tracewarehouse.plot.theme import brief
from tracewarehouse.report.content import Part, Picture, Section, Table
from tracewarehouse.report.data import Asked, Row
from tracewarehouse.report.tables import folded, listed
from tracewarehouse.report.wording import label, part, plural

TOP, POINTS = 10, 300

_PEAKS = """
SELECT rank, device_type, device, coalesce(peak_bytes, peak_net_bytes) AS peak, peak_bytes IS NULL AS is_net,
  peak_step, peak_at_ns, peak_reserved_bytes AS reserved
FROM memory_peak
ORDER BY device_type = 0, peak DESC, rank
"""


def memory(asked: Asked) -> Section:
    """The section."""
    tables: list[Table] = []
    parts: list[Part] = []
    if asked.has("memory_peak"):
        parts += _in_use(asked)
        tables.append(
            listed(asked, "memory_peak", "The peak of each device", order="peak_bytes DESC NULLS LAST, rank")
        )
        tables.append(
            listed(asked, "memory_by_op", "Operators that allocate", order="allocated_bytes DESC, rank")
        )
    if asked.has("memory_bandwidth_summary"):
        parts += _copies(asked)
        tables.append(
            folded(asked, "memory_bandwidth_summary", "Copies and sets by direction", "bytes DESC, direction")
        )
    if asked.has("queue_length_summary"):
        parts += _queue(asked)
        tables.append(
            listed(
                asked,
                "queue_length_summary",
                "How long queues of launched work were",
                order="queued_ns DESC NULLS LAST, rank",
            )
        )
    return Section("memory", "Memory and queues", _sentence(asked), tuple(parts), tuple(tables))


def peak(asked: Asked) -> Row | None:
    """The device with the highest peak, GPUs first; None where nothing is recorded."""
    rows = asked.rows(_PEAKS, "memory_peak")
    return rows[0] if rows else None


def where(row: Row) -> str:
    """`rank 3, GPU 0`."""
    return f"rank {row['rank']}, " + ("CPU" if row["device_type"] == 0 else f"GPU {row['device']}")


def _sentence(asked: Asked) -> str:
    row = peak(asked)
    if row is None:
        return (
            f"How much memory was in use is not told: {asked.lacking('memory_peak') or 'no memory events'}."
        )
    what = "rose to at most" if not row["is_net"] else "rose above the start by at most"
    step = "" if row["peak_step"] is None else f", in step {row['peak_step']}"
    reserved = "" if not row["reserved"] else f"; {brief(row['reserved'], 'bytes')} were reserved"
    return f"Allocated memory {what} {brief(row['peak'], 'bytes')} ({where(row)}){step}{reserved}."


def _in_use(asked: Asked) -> list[Part]:
    first = peak(asked)
    assert first is not None
    device = " AND ".join(
        f"{key} IS NOT DISTINCT FROM {'NULL' if first[key] is None else first[key]}"
        for key in ("rank", "device_type", "device")
    )
    column = "net_bytes" if first["is_net"] else "allocated_bytes"
    lines: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    for name, meant, each in (("allocated", "head", column), ("reserved", "base", "reserved_bytes")):
        points = _thinned(asked, "memory_curve", device, each)
        if any(value for _, value in points):
            lines[name] = (meant, points)
    over_time = Picture(f"In use over time: {where(first)}", series(lines, "memory", "bytes", PAGE))
    rows = asked.rows(f"SELECT * FROM ({_PEAKS}) WHERE (device_type = 0) = {first['device_type'] == 0}")
    shown = [
        Bar(
            where(row),
            row["peak"],
            "plain",
            brief(row["peak"], "bytes"),
            f"{where(row)}: {brief(row['peak'], 'bytes')}",
        )
        for row in rows[:TOP]
    ]
    changes = asked.one("SELECT count(*) AS count FROM memory_curve", "memory_curve")["count"]
    said = f"{changes:,} allocations and frees were recorded, on all ranks."
    parts = [Part("In use", said, (over_time,) if lines else ())]
    if len(rows) > 1:
        least = rows[-1]
        ends = [f"{brief(row['peak'], 'bytes')} ({where(row)})" for row in (least, first)]
        said = f"From {ends[0]} to {ends[1]}."
        title = "Highest peaks" if len(rows) > TOP else "Peaks"
        alike = brief(least["peak"], "bytes") == brief(first["peak"], "bytes")
        if alike:
            said = f"All {len(rows):,} devices peak at {brief(first['peak'], 'bytes')}."
        parts.append(Part("Peak by device", said, () if alike else (Picture(title, bars(shown, PAGE)),)))
    return parts


def _thinned(asked: Asked, name: str, condition: str, column: str) -> list[tuple[float, float]]:
    """At most twice `POINTS` of a curve: the highest and the last value of each stretch of time."""
    rows = asked.rows(
        f"""
        WITH known AS (
          SELECT ts_ns - min(ts_ns) OVER () AS at_ns, {column} AS value,
            row_number() OVER (ORDER BY ts_ns, {"position" if name == "memory_curve" else "ts_ns"}) AS place
          FROM {name} WHERE {condition} AND {column} IS NOT NULL
        ),
        stretches AS (
          SELECT *, floor({POINTS}.0 * at_ns / (1 + max(at_ns) OVER ())) AS stretch FROM known
        ),
        marked AS (
          SELECT arg_max(place, value) AS top, max(place) AS last FROM stretches GROUP BY stretch
        )
        SELECT DISTINCT place, at_ns, value
        FROM known WHERE place IN (SELECT top FROM marked UNION ALL SELECT last FROM marked)
        ORDER BY place
        """,
        name,
    )
    return [(row["at_ns"], row["value"]) for row in rows]


def _copies(asked: Asked) -> list[Part]:
    rows = asked.rows(
        """
        SELECT direction, sum(count)::BIGINT AS count, sum(bytes)::BIGINT AS bytes,
          sum(active_ns)::BIGINT AS ns
        FROM memory_bandwidth_summary GROUP BY direction ORDER BY ns DESC, direction
        """
    )
    known = [row for row in rows if row["ns"]]
    if not known:
        return [Part("Copies and sets", "No copy or set has both a length and bytes.")]
    moved = sum(row["bytes"] for row in known)
    shown = [
        Bar(
            row["direction"],
            row["ns"] / asked.ranks,
            "exposed_memory",
            f"{asked.each(row['ns'])} at {brief(row['bytes'] / row['ns'], 'bytes_per_ns')}",
            f"{row['direction']}: {row['count']:,} of {brief(row['bytes'], 'bytes')},"
            f" {asked.each(row['ns'])} per rank",
        )
        for row in known[:TOP]
    ]
    count, longest = sum(row["count"] for row in rows), label(known[0]["direction"])
    what = "1 copy or set" if count == 1 else f"{count:,} copies and sets"
    said = f"{what}, {brief(moved, 'bytes')} in all; {longest} took the longest."
    return [
        Part(
            "Copies and sets", said, (Picture("Time per rank, and mean bandwidth in it", bars(shown, PAGE)),)
        )
    ]


def _queue(asked: Asked) -> list[Part]:
    rows = asked.rows(
        "SELECT rank, device, stream, queued_ns, max_length, time_mean, waiting FROM queue_length_summary"
        " WHERE queued_ns IS NOT NULL ORDER BY queued_ns DESC, rank LIMIT 1"
    )
    if not rows:
        return [Part("Queue", "No launch is known, so queues are not.")]
    row = rows[0]
    place = f"rank {row['rank']}, stream {row['stream']}"
    condition = f"rank = {row['rank']} AND device = {row['device']} AND stream = {row['stream']}"
    points = _thinned(asked, "queue_length", condition, "queue_length")
    spec = series({"queued": ("head", points)}, "GPU rows in the queue", None, PAGE)
    mean = "" if row["time_mean"] is None else f", {row['time_mean']:.1f} on average"
    said = (
        f"The fullest queue ({place}) held up to {plural(row['max_length'], 'GPU row')}{mean};"
        f" work waited in it for {part(row['waiting'] or 0, 1)} of the time."
    )
    return [Part("Launched and not started", said, (Picture(f"Queue over time: {place}", spec),))]
