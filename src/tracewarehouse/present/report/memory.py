"""Memory: use over time, peaks, copies and queue depth; memory snapshots, and what changed between two."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.bars import Bar, Block, bar_chart, block_chart
from tracewarehouse.present.plot.lines import line_chart
from tracewarehouse.present.plot.theme import format_short
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import (
    Card,
    Figure,
    Section,
    Table,
    combined_ranks,
    distinct_labels,
    first_rows,
    label,
    percent,
)

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.change import Change, SnapshotDiff


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
    return Section("memory", "Memory and queues", _memory_summary(data), tuple(cards), tuple(tables))


def peak_memory(data: ReportData) -> Row | None:
    """The device with the highest peak, GPUs first; None if no memory events were recorded."""
    rows = data.rows(_PEAKS, "memory_peak")
    return rows[0] if rows else None


def device_label(row: Row) -> str:
    """`rank 3, GPU 0`."""
    return f"rank {row['rank']}, " + ("CPU" if row["device_type"] == 0 else f"GPU {row['device']}")


def _bytes(value: float) -> str:
    return format_short(value, "bytes")


def _memory_summary(data: ReportData) -> str:
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
        points = _memory_curve(data, "memory_curve", condition, column)
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


def _memory_curve(data: ReportData, name: str, condition: str, column: str) -> list[tuple[float, float]]:
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
    points = _memory_curve(data, "queue_length", condition, "queue_length")
    spec = line_chart({"queued": ("head", points)}, "queued GPU activities", None, PAGE)
    mean = "" if row["time_mean"] is None else f" (mean {row['time_mean']:.1f})"
    text = (
        f"Fullest queue ({stream}): depth up to {row['max_length']:,}{mean};"
        f" not empty for {percent(row['waiting'] or 0, 1)} of the time."
    )
    return Card("Queue depth", text, (Figure(f"Queue depth over time: {stream}", spec),))


_MAX_BLOCKS = 60
_MAX_HOLDERS = 10
_SNAPSHOT_INTERVALS = 400
# Category → the color of a category of the page.
_COLORS = {
    "static": "base",
    "setup": "idle_kernel_wait",
    "forward": "compute",
    "backward": "exposed_comm",
    "optimizer": "exposed_memory",
    "collective": "comm_wait",
    "data": "idle_dataloader",
    "other": "other",
    "unknown": "idle_unknown",
}


def snapshot_section(data: ReportData) -> Iterator[Section]:
    """The section; none without a memory snapshot."""
    if not data.has_rows("snapshot_curve"):
        return
    shown = _shown_device(data)
    failures = data.rows("SELECT * FROM snapshot_oom ORDER BY rank, device, entry", "snapshot_oom")
    cards = [*_failure_cards(failures), _timeline_card(data, shown), *_holder_cards(data, shown)]
    order = "rank, device, bytes DESC, stack_id"
    tables: list[Table] = []
    if failures:
        tables.append(first_rows(data, "snapshot_oom", "Failed allocations"))
    tables.append(first_rows(data, "snapshot_peak", "Who holds the peak of each device", order=order))
    if data.has_rows("snapshot_fragmentation"):
        tables.append(first_rows(data, "snapshot_fragmentation", "Reserved but unused memory of each pool"))
    yield Section(
        "snapshot", "Memory snapshot", _snapshot_summary(shown, failures), tuple(cards), tuple(tables)
    )


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
    seen = set()
    for row in failures:
        if (place := (row["rank"], row["device"])) in seen:
            continue
        seen.add(place)
        where = f" It was requested at {row['top_frame']}." if row["top_frame"] else ""
        unknown = f" Other processes cannot be excluded: {row['reason']}." if row["reason"] else ""
        unknown = "" if row["verdict"] == "fragmentation" else unknown
        title = f"Out of memory on rank {row['rank']}: {row['verdict'].replace('_', ' ')}"
        yield Card(title, f"{row['explanation']}{where}{unknown} {row['advice']}")


def _timeline_card(data: ReportData, shown: Row) -> Card:
    """The largest allocations over the entries of the snapshot, and the total."""
    where = f"rank = {shown['rank']} AND device = {shown['device']}"
    end = shown["last_entry"] + 1
    rows = data.rows(
        f"SELECT *, coalesce(to_entry, {end}) - coalesce(from_entry, -1) AS entries"
        f" FROM snapshot_allocations WHERE {where}"
        f" ORDER BY bytes::HUGEINT * entries DESC, from_entry, address LIMIT {_MAX_BLOCKS}",
        "snapshot_allocations",
    )
    blocks = [
        Block(
            0 if row["from_entry"] is None else row["from_entry"] + 1,
            end if row["to_entry"] is None else row["to_entry"] + 1,
            row["bytes"],
            row["category"],
            f"{_bytes(row['bytes'])}, {row['category']}: {row['top_frame'] or 'no call stack'}",
        )
        for row in rows
    ]
    marks = [
        (row["entry"] + 1, f"out of memory: {_bytes(row['requested_bytes'])} requested")
        for row in data.rows(f"SELECT entry, requested_bytes FROM snapshot_oom WHERE {where}", "snapshot_oom")
    ]
    spec = block_chart(blocks, _snapshot_curve(data, where), _COLORS, marks, PAGE)
    total = data.row(f"SELECT count(*) AS count FROM snapshot_allocations WHERE {where}")["count"]
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
    return Card("Active memory", text, (Figure(f"Active memory: {_place(shown)}", spec),))


def _snapshot_curve(data: ReportData, where: str) -> list[tuple[int, int]]:
    """Active bytes, reduced to the highest and the last point of each interval; entry 0 is the start."""
    rows = data.rows(
        f"""
        WITH points AS (SELECT entry + 1 AS entry, active_bytes FROM snapshot_curve WHERE {where}),
        intervals AS (
          SELECT *, floor({_SNAPSHOT_INTERVALS}.0 * entry / (1 + max(entry) OVER ())) AS bin FROM points
        ),
        kept AS (
          SELECT unnest([arg_max(entry, active_bytes), max(entry), min(entry)]) AS entry
          FROM intervals GROUP BY bin
        )
        SELECT entry, active_bytes FROM points WHERE entry IN (SELECT entry FROM kept) ORDER BY entry
        """
    )
    return [(row["entry"], max(row["active_bytes"], 0)) for row in rows]


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
    bars = [
        Bar(
            row["frame"],
            row["bytes"],
            _COLORS[row["category"]],
            f"{_bytes(row['bytes'])} ({percent(row['share'], 1)})",
            f"{row['frame']}, {row['category']}: {_bytes(row['bytes'])} in {plural(row['blocks'], 'block')}",
        )
        for row in rows[:_MAX_HOLDERS]
    ]
    first = rows[0]
    text = (
        f"{first['frame']} holds the most: {_bytes(first['bytes'])} in {plural(first['blocks'], 'block')},"
        f" {percent(first['share'], 1)} of the peak ({first['category']})."
    )
    yield Card("Who holds the peak", text, (Figure("Bytes at the peak by call", bar_chart(bars, PAGE)),))


def _place(row: Row) -> str:
    return f"rank {row['rank']}, GPU {row['device']}"


_MAX_CHANGE_BARS, _MAX_ROWS = 12, 50


def snapshot_sections(change: Change) -> Iterator[Section]:
    """Active bytes at the peaks of both sides by call; none unless both have a memory snapshot."""
    snapshot = change.snapshot
    if snapshot is None:
        return
    rows = snapshot.rows.rows()
    before, after = (sum(row[f"{side}_bytes"] for row in rows) for side in ("base", "head"))
    summary = (
        f"The peak of active memory went from {_short_bytes(before)} to {_short_bytes(after)}"
        f" ({_change(after - before)})."
        " On each side the device with the highest peak counts."
    )
    sides = " ".join(shlex.quote(",".join(side)) for side in (change.base, change.head))
    table = _table(snapshot, f"tw diff {sides}")
    yield Section("snapshot", "Memory at the peak", summary, (_changes_card(rows),), (table,))


def _changes_card(rows: list[dict[str, Any]]) -> Card:
    """The calls whose bytes changed the most; the changes of all calls sum to that of the peak."""
    title = "Largest changes by call"
    changed = [row for row in rows if row["delta_bytes"]]
    if not changed:
        return Card(title, "No changes.")
    shown = changed[:_MAX_CHANGE_BARS]
    names = distinct_labels([row["top_frame"] for row in shown])
    bars = [
        Bar(
            name,
            row["delta_bytes"],
            "longer" if row["delta_bytes"] > 0 else "shorter",
            _change(row["delta_bytes"]),
            f"{row['top_frame']}, {row['category']}: {_short_bytes(row['base_bytes'])} to"
            f" {_short_bytes(row['head_bytes'])}",
        )
        for name, row in zip(names, shown, strict=True)
    ]
    rest = sum(row["delta_bytes"] for row in changed[_MAX_CHANGE_BARS:])
    text = "All calls whose memory changed are shown."
    if len(changed) > _MAX_CHANGE_BARS:
        text = f"{len(bars)} of {len(changed):,} calls shown; the rest sum to {_change(rest)}."
    return Card(title, text, (Figure("More memory to the right, less to the left", bar_chart(bars, PAGE)),))


def _table(snapshot: SnapshotDiff, command: str) -> Table:
    result = snapshot.rows
    assert result.contract is not None
    fields = result.columns()
    return Table(
        name="snapshot_diff",
        caption="Active memory at the peak by call",
        fields=tuple(fields),
        docs=tuple(column.doc for column in result.contract.columns),
        rows=[[row[field.name] for field in fields] for row in result.head(_MAX_ROWS).rows()],
        total=len(result),
        command=command,
    )


def _short_bytes(value: int) -> str:
    return format_short(value, "bytes")


def _change(value: int) -> str:
    return (
        f"+{_short_bytes(value)}"
        if value > 0
        else f"-{_short_bytes(-value)}"
        if value < 0
        else _short_bytes(0)
    )
