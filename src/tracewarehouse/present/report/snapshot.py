"""Memory snapshots: why memory ran out, what was live when, and who holds the peak."""

from __future__ import annotations

from collections.abc import Iterator

from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.bars import Bar, bar_chart
from tracewarehouse.present.plot.blocks import Block, block_chart
from tracewarehouse.present.plot.theme import format_short
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import Card, Figure, Section, Table
from tracewarehouse.present.report.tables import first_rows
from tracewarehouse.present.report.text import percent

_MAX_BLOCKS = 60
_MAX_HOLDERS = 10
_CURVE_INTERVALS = 400
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
    yield Section("snapshot", "Memory snapshot", _summary(shown, failures), tuple(cards), tuple(tables))


def snapshot_sentence(data: ReportData) -> str:
    """The peak in a sentence; empty without a memory snapshot."""
    return _summary(_shown_device(data), []) if data.has_rows("snapshot_curve") else ""


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


def _summary(shown: Row, failures: list[Row]) -> str:
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
    spec = block_chart(blocks, _curve(data, where), _COLORS, marks, PAGE)
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


def _curve(data: ReportData, where: str) -> list[tuple[int, int]]:
    """Active bytes, reduced to the highest and the last point of each interval; entry 0 is the start."""
    rows = data.rows(
        f"""
        WITH points AS (SELECT entry + 1 AS entry, active_bytes FROM snapshot_curve WHERE {where}),
        intervals AS (
          SELECT *, floor({_CURVE_INTERVALS}.0 * entry / (1 + max(entry) OVER ())) AS bin FROM points
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


def _bytes(value: float) -> str:
    return format_short(value, "bytes")
