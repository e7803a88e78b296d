"""Memory: use over time, peaks, copies and queue depth; memory snapshots, and what changed between two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracewarehouse.present.plot.charts import Bar, Block, block_chart, line_chart
from tracewarehouse.present.plot.parts import format_short
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import (
    Card,
    Figure,
    Listing,
    Section,
    bar_card,
    changes_card,
    chart_card,
    diff_command,
    label,
    percent,
    result_table,
    tables,
)

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.change import Change


_MAX_BARS = 10
_CURVE_INTERVALS = 300  # of a curve; each contributes its highest and its last point
_SNAPSHOT_INTERVALS = 400
_MAX_BLOCKS = 60
# Category of a block → the color of a category of the page.
_COLORS = {
    "static": "base",
    "setup": "idle_latency",
    "forward": "compute",
    "backward": "exposed_comm",
    "optimizer": "exposed_memory",
    "collective": "comm_wait",
    "data": "idle_dataloader",
    "other": "other",
    "unknown": "idle_unknown",
}
_TABLES = (
    Listing("memory_peak", "Peak memory of each device", "peak_bytes DESC NULLS LAST, rank"),
    Listing("memory_by_op", "Allocations by operator", "allocated_bytes DESC, rank"),
    Listing(
        "memory_bandwidth_summary",
        "Memcpy and memset by direction",
        "bytes DESC, direction",
        is_combined=True,
    ),
    Listing("queue_length_summary", "Queue depth of each stream", "queued_ns DESC NULLS LAST, rank"),
)
_PEAKS = """
SELECT rank, device_type, device, coalesce(peak_bytes, peak_net_bytes) AS peak,
  peak_bytes IS NULL OR device_type IS NOT DISTINCT FROM 0 AS is_net,
  peak_step, peak_at_ns, peak_reserved_bytes AS reserved
FROM memory_peak
ORDER BY device_type = 0, peak DESC, rank
"""


def memory_section(data: ReportData) -> Section:
    """The section."""
    peak = peak_memory(data)
    cards = [] if peak is None else [_usage_card(data, peak), *_peak_cards(data)]
    printed = tables(data, *(_TABLES[2:] if peak is None else _TABLES))
    if data.has_rows("memory_bandwidth_summary"):
        cards.append(_bandwidth_card(data))
    if data.has_rows("queue_length_summary"):
        cards.append(_queue_card(data))
    return Section("memory", "Memory and queues", _memory_summary(data, peak), tuple(cards), printed)


def peak_memory(data: ReportData) -> Row | None:
    """The device with the highest peak, GPUs first; None if no memory events were recorded."""
    rows = data.rows(_PEAKS, "memory_peak")
    return rows[0] if rows else None


def device_label(row: Row) -> str:
    """`rank 3, GPU 0`."""
    return f"rank {row['rank']}, " + ("CPU" if row["device_type"] == 0 else f"GPU {row['device']}")


def _bytes(value: float) -> str:
    return format_short(value, "bytes")


def _memory_summary(data: ReportData, row: Row | None) -> str:
    if row is None:
        return f"Memory use is unknown: {data.missing_reason('memory_peak') or 'no memory events'}."
    baseline = " above its initial level" if row["is_net"] else ""
    step = "" if row["peak_step"] is None else f", in step {row['peak_step']}"
    reserved = "" if not row["reserved"] else f"; {_bytes(row['reserved'])} were reserved"
    return (
        f"Allocated memory peaked at {_bytes(row['peak'])}{baseline} ({device_label(row)}){step}{reserved}."
    )


def _usage_card(data: ReportData, peak: Row) -> Card:
    """Memory over time of the device with the highest peak."""
    condition = " AND ".join(
        f"{key} IS NOT DISTINCT FROM {'NULL' if peak[key] is None else peak[key]}"
        for key in ("rank", "device_type", "device")
    )
    allocated = "net_bytes" if peak["is_net"] else "allocated_bytes"
    lines: dict[str, tuple[str, list[tuple[int, int]]]] = {}
    for name, color, column in (("allocated", "head", allocated), ("reserved", "base", "reserved_bytes")):
        points = _curve_over_time(data, "memory_curve", condition, column, "position")
        if any(value for _, value in points):
            lines[name] = (color, points)
    title = f"Memory use over time: {device_label(peak)}"
    figures = (Figure(title, line_chart(lines, "memory", "bytes")),) if lines else ()
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
        devices = "CPUs" if highest["device_type"] == 0 else "GPUs"
        text = f"The {devices} of all {len(rows):,} ranks peak at {_bytes(highest['peak'])}."
        return [Card("Peak by device", text)]
    bars = []
    for row in rows[:_MAX_BARS]:
        name, peak = device_label(row), _bytes(row["peak"])
        bars.append(Bar(name, row["peak"], "plain", peak, f"{name}: {peak}"))
    low, high = (f"{_bytes(row['peak'])} ({device_label(row)})" for row in (lowest, highest))
    title = "Highest peaks" if len(rows) > _MAX_BARS else "Peaks"
    return [bar_card("Peak by device", f"Peaks range from {low} to {high}.", title, bars)]


def _curve_over_time(
    data: ReportData, name: str, condition: str, column: str, tie_break: str = "ts_ns"
) -> list[tuple[int, int]]:
    """The values of a column by time since the first one: of each interval the highest and the last."""
    points = f"""
    SELECT ts_ns - min(ts_ns) OVER () AS x, {column} AS value,
      row_number() OVER (ORDER BY ts_ns, {tie_break}) AS point
    FROM {name} WHERE {condition} AND {column} IS NOT NULL
    """
    data.result(name)
    return _reduced(data, points, _CURVE_INTERVALS, "arg_max(point, value), max(point)")


def _reduced(data: ReportData, points: str, intervals: int, kept: str) -> list[tuple[int, int]]:
    """The points (`point`, `x`, `value`) of a SELECT that are `kept` of each interval."""
    rows = data.rows(
        f"""
        WITH points AS ({points}),
        intervals AS (SELECT *, floor({intervals}.0 * x / (1 + max(x) OVER ())) AS bin FROM points),
        kept AS (SELECT unnest([{kept}]) AS point FROM intervals GROUP BY bin)
        SELECT x, value FROM points WHERE point IN (FROM kept) ORDER BY point
        """
    )
    return [(row["x"], row["value"]) for row in rows]


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
    operations = plural(sum(row["count"] for row in rows), "memory operation")
    moved = _bytes(sum(row["bytes"] for row in timed))
    text = (
        f"{operations} (memcpy, memset), {moved} in total; {label(timed[0]['direction'])} took the longest."
    )
    bars = []
    for row in timed[:_MAX_BARS]:
        name, time, moved = row["direction"], data.per_rank(row["ns"]), _bytes(row["bytes"])
        bandwidth = format_short(row["bytes"] / max(row["copy_ns"], 1), "bytes_per_ns")
        description = f"{name}: {row['count']:,} operations, {moved}, {time} per rank"
        bars.append(
            Bar(name, row["ns"] / data.ranks, "exposed_memory", f"{time} at {bandwidth}", description)
        )
    return bar_card("Memcpy and memset", text, "Time per rank in the recording, and mean bandwidth", bars)


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
    points = _curve_over_time(data, "queue_length", condition, "queue_length")
    spec = line_chart({"queued": ("head", points)}, "queued GPU activities", None)
    mean = "" if row["time_mean"] is None else f" (mean {row['time_mean']:.1f})"
    text = (
        f"Fullest queue ({stream}): depth up to {row['max_length']:,}{mean};"
        f" not empty for {percent(row['waiting'] or 0, 1)} of the time."
    )
    return chart_card("Queue depth", text, f"Queue depth over time: {stream}", spec)


def snapshot_section(data: ReportData) -> Iterator[Section]:
    """The section; none without a memory snapshot."""
    if not data.has_rows("snapshot_curve"):
        return
    device = _shown_device(data)
    failures = data.rows("SELECT * FROM snapshot_oom ORDER BY rank, device, entry", "snapshot_oom")
    cards = [*_failure_cards(failures), _timeline_card(data, device), *_holder_cards(data, device)]
    order = "rank, device, bytes DESC, stack_id"
    printed = tables(
        data,
        Listing("snapshot_oom", "Failed allocations"),
        Listing("snapshot_peak", "Who holds the peak of each device", order),
        Listing("snapshot_fragmentation", "Reserved but unused memory of each pool"),
    )
    yield Section("snapshot", "Memory snapshot", _snapshot_summary(device, failures), tuple(cards), printed)


def snapshot_sentence(data: ReportData) -> str:
    """The peak in a sentence; empty without a memory snapshot."""
    return _snapshot_summary(_shown_device(data), []) if data.has_rows("snapshot_curve") else ""


def _shown_device(data: ReportData) -> Row:
    """The device with a failed allocation; of several, or without one, the device with the highest peak."""
    data.result("snapshot_oom")
    return data.row(
        """
        SELECT curve.rank, curve.device, max(active_bytes) AS peak,
          arg_max(entry, (active_bytes, -entry)) AS peak_entry, max(entry) AS last_entry,
          arg_max(reserved_bytes, (active_bytes, -entry)) AS reserved,
          coalesce(max(failed.count), 0) AS failures
        FROM snapshot_curve AS curve
        LEFT JOIN (SELECT rank, device, count(*) AS count FROM snapshot_oom GROUP BY rank, device) AS failed
          ON failed.rank = curve.rank AND failed.device = curve.device
        GROUP BY curve.rank, curve.device
        ORDER BY failures = 0, peak DESC, curve.rank, curve.device LIMIT 1
        """,
        "snapshot_curve",
    )


def _snapshot_summary(shown: Row, failures: list[Row]) -> str:
    reserved = f"{_bytes(shown['reserved'])} reserved ({_place(shown)})"
    peak = f"Active memory peaked at {_bytes(shown['peak'])} of {reserved}."
    if not failures:
        return f"{peak} No allocation failed while the snapshot was recorded."
    verdicts = ", ".join(dict.fromkeys(row["verdict"].replace("_", " ") for row in failures))
    return f"{plural(len(failures), 'allocation')} failed: {verdicts}. {peak}"


def _failure_cards(failures: list[Row]) -> Iterator[Card]:
    """The first failure of each device."""
    devices = set()
    for row in failures:
        if (place := (row["rank"], row["device"])) in devices:
            continue
        devices.add(place)
        frame_sentence = f" It was requested at {row['top_frame']}." if row["top_frame"] else ""
        unknown = f" Other processes cannot be excluded: {row['reason']}." if row["reason"] else ""
        unknown = "" if row["verdict"] == "fragmentation" else unknown
        title = f"Out of memory on rank {row['rank']}: {row['verdict'].replace('_', ' ')}"
        yield Card(title, f"{row['explanation']}{frame_sentence}{unknown} {row['advice']}")


def _timeline_card(data: ReportData, shown: Row) -> Card:
    """The largest allocations over the entries of the snapshot, and the total."""
    device = f"rank = {shown['rank']} AND device = {shown['device']}"
    end = shown["last_entry"] + 1
    rows = data.rows(
        f"SELECT *, coalesce(to_entry, {end}) - coalesce(from_entry, -1) AS entries"
        f" FROM snapshot_allocations WHERE {device}"
        f" ORDER BY bytes::HUGEINT * entries DESC, from_entry, address LIMIT {_MAX_BLOCKS}",
        "snapshot_allocations",
    )
    blocks, marks = [], []
    for row in rows:
        start = 0 if row["from_entry"] is None else row["from_entry"] + 1
        freed = end if row["to_entry"] is None else row["to_entry"] + 1
        text = f"{_bytes(row['bytes'])}, {row['category']}: {row['top_frame'] or 'no call stack'}"
        blocks.append(Block(start, freed, row["bytes"], row["category"], text))
    for row in data.rows(f"SELECT entry, requested_bytes FROM snapshot_oom WHERE {device}", "snapshot_oom"):
        text = f"out of memory: {_bytes(row['requested_bytes'])} requested"
        marks.append((row["entry"] + 1, text))
    # Entry 0 is the start of the recording.
    points = f"""
    SELECT entry + 1 AS x, active_bytes AS value, entry AS point FROM snapshot_curve WHERE {device}
    """
    selected = "arg_max(point, value), max(point), min(point)"
    active = [
        (entry, max(value, 0)) for entry, value in _reduced(data, points, _SNAPSHOT_INTERVALS, selected)
    ]
    spec = block_chart(blocks, active, _COLORS, marks)
    total = data.row(f"SELECT count(*) AS count FROM snapshot_allocations WHERE {device}")["count"]
    drawn = (
        "all allocations"
        if total <= len(blocks)
        else f"the {len(blocks)} of {total:,} allocations with the most bytes times entries"
    )
    dashes = " Dashes mark failed allocations." if marks else ""
    text = (
        f"Blocks are {drawn}, in the order in which they were made; the line is all active memory of"
        f" {_place(shown)}.{dashes}"
    )
    return chart_card("Active memory", text, f"Active memory: {_place(shown)}", spec)


def _holder_cards(data: ReportData, shown: Row) -> Iterator[Card]:
    """The call stacks that hold the peak of the device, by their top frame."""
    rows = data.rows(
        f"""
        SELECT coalesce(top_frame, 'no call stack') AS frame, category, sum(bytes)::BIGINT AS bytes,
          sum(blocks)::BIGINT AS blocks, sum(share) AS share
        FROM snapshot_peak WHERE rank = {shown["rank"]} AND device = {shown["device"]}
        GROUP BY ALL ORDER BY bytes DESC, frame
        """,
        "snapshot_peak",
    )
    if not rows:
        return
    bars = []
    for row in rows[:_MAX_BARS]:
        frame, category, size = row["frame"], row["category"], _bytes(row["bytes"])
        description = f"{frame}, {category}: {size} in {plural(row['blocks'], 'block')}"
        text = f"{size} ({percent(row['share'], 1)})"
        bars.append(Bar(frame, row["bytes"], _COLORS[category], text, description))
    first = rows[0]
    text = (
        f"{first['frame']} holds the most: {_bytes(first['bytes'])} in {plural(first['blocks'], 'block')},"
        f" {percent(first['share'], 1)} of the peak ({first['category']})."
    )
    yield bar_card("Who holds the peak", text, "Bytes at the peak by call", bars)


def _place(row: Row) -> str:
    return f"rank {row['rank']}, GPU {row['device']}"


def snapshot_sections(change: Change) -> Iterator[Section]:
    """Active bytes at the peaks of both sides by call; none unless both have a memory snapshot."""
    snapshot = change.snapshot
    if snapshot is None:
        return
    rows = snapshot.rows.rows()
    before, after = (sum(row[f"{side}_bytes"] for row in rows) for side in ("base", "head"))
    summary = (
        f"The peak of active memory went from {_bytes(before)} to {_bytes(after)}"
        f" ({_change(after - before)}). On each side the device with the highest peak counts."
    )
    # The changes of all calls sum to that of the peak.
    changes = []
    for row in filter(lambda row: row["delta_bytes"], rows):
        sizes = f"{_bytes(row['base_bytes'])} to {_bytes(row['head_bytes'])}"
        description = f"{row['top_frame']}, {row['category']}: {sizes}"
        changes.append((row["top_frame"], row["delta_bytes"], description))
    caption = "More memory to the right, less to the left"
    card = changes_card(
        "Largest changes by call", caption, "calls", changes, _change, changed="whose memory changed"
    )
    command = diff_command(change.base, change.head)
    table = result_table(snapshot.rows, "snapshot_diff", "Active memory at the peak by call", command)
    yield Section("snapshot", "Memory at the peak", summary, (card,), (table,))


def _change(value: float) -> str:
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return f"{sign}{_bytes(abs(value))}"
