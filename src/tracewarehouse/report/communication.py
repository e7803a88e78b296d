"""Communication: overlap with computation, time by collective, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence

from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, bar_chart
from tracewarehouse.plot.grids import Segment, stacked_bars
from tracewarehouse.render.text import plural
from tracewarehouse.report.data import ReportData, Row
from tracewarehouse.report.document import Card, Figure, Section, Table
from tracewarehouse.report.tables import first_rows
from tracewarehouse.report.text import duration, percent

_MAX_BARS, _MAX_RANKS = 8, 20


def communication_section(data: ReportData) -> Section:
    """The section."""
    total = data.row(
        "SELECT sum(comm_ns)::BIGINT AS comm, sum(overlap_ns)::BIGINT AS overlapped,"
        " sum(exposed_ns)::BIGINT AS exposed FROM comm_comp_overlap",
        "comm_comp_overlap",
    )
    on_gpu, has_waits = bool(total["comm"]), data.has_rows("collective_waits")
    if not on_gpu and not has_waits:
        reason = data.missing_reason("collective_waits") or "no collectives recorded"
        return Section("communication", "Communication", f"No communication data: {reason}.")
    summary = "Collectives ran on the host only, so their overlap with GPU computation is unknown."
    if on_gpu:
        summary = (
            f"Communication took {data.per_rank(total['comm'])} {data.on_rank}: "
            f"{percent(total['overlapped'], total['comm'])} overlapped with computation, "
            f"{data.per_rank(total['exposed'])} exposed."
        )
    cards = [
        *([_overlap_card(data)] if on_gpu else []),
        *(_wait_cards(data) if has_waits else [_no_waits_card(data)]),
    ]
    tables = _tables(data, on_gpu, has_waits)
    return Section("communication", "Communication", summary, tuple(cards), tuple(tables))


def _tables(data: ReportData, on_gpu: bool, has_waits: bool) -> list[Table]:
    tables: list[Table] = []
    if on_gpu:
        tables.append(first_rows(data, "comm_comp_overlap", "Communication and overlap per device"))
    if on_gpu and data.has_rows("comm_by_group"):
        caption = "Communication by process group"
        tables.append(first_rows(data, "comm_by_group", caption, order="exposed_ns DESC, rank"))
    if has_waits:
        order = "wait_ns DESC NULLS LAST, rank, event_id"
        tables.append(first_rows(data, "stragglers", "Stragglers: ranks that other ranks wait for"))
        caption = "Individual collectives, longest wait first"
        tables.append(first_rows(data, "collective_waits", caption, order=order))
    return tables


def _no_waits_card(data: ReportData) -> Card:
    reason = data.missing_reason("collective_waits")
    return Card("Stragglers", f"Wait times at collectives are unknown: {reason}.")


def _overlap_card(data: ReportData) -> Card:
    rows = data.rows(
        """
        SELECT rank, sum(exposed_ns)::BIGINT AS exposed_ns, sum(overlap_ns)::BIGINT AS overlap_ns
        FROM comm_comp_overlap GROUP BY rank ORDER BY exposed_ns DESC, rank
        """
    )
    shown = rows if len(rows) <= _MAX_RANKS else rows[: _MAX_RANKS // 2] + rows[-_MAX_RANKS // 2 :]
    segments = [
        Segment(
            str(row["rank"]),
            category,
            row[column],
            category,
            f"rank {row['rank']}: {duration(row[column])} {state}",
        )
        for row in shown
        for category, column, state in (
            ("exposed_comm", "exposed_ns", "exposed"),
            ("hidden_comm", "overlap_ns", "overlapped with computation"),
        )
    ]
    ranks, categories = [str(row["rank"]) for row in shown], ("exposed_comm", "hidden_comm")
    spec = stacked_bars(segments, ranks, categories, "ns", PAGE)
    text = f"Rank {rows[0]['rank']} has the most exposed communication ({duration(rows[0]['exposed_ns'])})"
    if len(rows) > 1:
        text += f", rank {rows[-1]['rank']} the least ({duration(rows[-1]['exposed_ns'])})"
    limit = "" if len(shown) == len(rows) else f": {len(shown)} of {len(rows)} ranks, from both ends"
    title = "Exposed and overlapped communication"
    return Card(title, f"{text}.", (Figure(f"Communication by rank{limit}", spec),))


def _wait_cards(data: ReportData) -> list[Card]:
    rows = data.rows(
        """
        SELECT collective || ' of ' || members || ' ranks' AS name, count(*) AS count,
          sum(wait_ns)::BIGINT AS wait_ns, sum(transfer_ns)::BIGINT AS transfer_ns
        FROM collective_waits WHERE transfer_ns IS NOT NULL
        GROUP BY name ORDER BY sum(dur_ns) DESC, name
        """
    )
    unmatched = data.row("SELECT count(*) AS count FROM collective_waits WHERE instance_id IS NULL")["count"]
    unmatched_text = f"{plural(unmatched, 'collective')} could not be matched across ranks."
    if not rows:
        return [Card("Collectives", unmatched_text)]
    wait_ns = sum(row["wait_ns"] or 0 for row in rows)
    total_ns = wait_ns + sum(row["transfer_ns"] or 0 for row in rows)
    share = percent(wait_ns, total_ns)
    text = f"{share} of the time in matched collectives was spent waiting for the last rank."
    if unmatched:
        text += f" {unmatched_text}"
    figure = _collectives_figure(data, rows[:_MAX_BARS])
    return [Card("Collectives", text, (figure,)), *_straggler_cards(data)]


def _collectives_figure(data: ReportData, rows: Sequence[Row]) -> Figure:
    segments = [
        Segment(
            row["name"],
            category,
            (row[column] or 0) / data.ranks,
            category,
            f"{row['name']}, {row['count']:,} times:"
            f" {data.per_rank(row[column] or 0)} {state} {data.on_rank}",
        )
        for row in rows
        for category, column, state in (
            ("exposed_transfer", "transfer_ns", "transfer"),
            ("comm_wait", "wait_ns", "waiting for the last rank"),
        )
    ]
    names, categories = [row["name"] for row in rows], ("exposed_transfer", "comm_wait")
    spec = stacked_bars(segments, names, categories, "ns", PAGE, axis_title="")
    return Figure("Transfer and wait time per rank", spec)


def _straggler_cards(data: ReportData) -> list[Card]:
    rows = data.rows(
        "SELECT rank, caused_wait_ns, share, arrived_last, collectives, waiting_ns FROM stragglers"
        " WHERE caused_wait_ns IS NOT NULL ORDER BY caused_wait_ns DESC, rank",
        "stragglers",
    )
    if not rows:
        return []
    if not rows[0]["caused_wait_ns"]:
        return [Card("Stragglers", "No rank waited for another at a collective.")]
    return [_wait_caused_card(rows), _wait_time_card(rows)]


def _wait_caused_card(rows: Sequence[Row]) -> Card:
    straggler = rows[0]
    bars = [
        _rank_bar(
            row,
            "caused_wait_ns",
            f"other ranks waited {duration(row['caused_wait_ns'])} for it; last at"
            f" {row['arrived_last']:,} of {row['collectives']:,} collectives",
        )
        for row in rows[:_MAX_BARS]
        if row["caused_wait_ns"]
    ]
    text = (
        f"Rank {straggler['rank']} causes the most waiting: {percent(straggler['share'] or 0, 1)}. "
        f"It was last at {straggler['arrived_last']:,} of its {straggler['collectives']:,} collectives."
    )
    return Card("Wait caused", text, (Figure("Total wait caused on other ranks", bar_chart(bars, PAGE)),))


def _wait_time_card(rows: Sequence[Row]) -> Card:
    longest = sorted(rows, key=lambda row: (-row["waiting_ns"], row["rank"]))[:_MAX_BARS]
    bars = [
        _rank_bar(row, "waiting_ns", f"waited {duration(row['waiting_ns'])} for other ranks")
        for row in longest
    ]
    text = f"Rank {longest[0]['rank']} waits longest: {duration(longest[0]['waiting_ns'])}."
    return Card("Wait time", text, (Figure("Time spent waiting at collectives", bar_chart(bars, PAGE)),))


def _rank_bar(row: Row, column: str, description: str) -> Bar:
    rank, ns = f"rank {row['rank']}", row[column]
    return Bar(rank, ns, "comm_wait", duration(ns), f"{rank}: {description}")
