"""Communication: what computation hides, which collectives take the time, who waits for whom."""

from __future__ import annotations

from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, bars
from tracewarehouse.plot.grids import Piece, stacks
from tracewarehouse.report.content import Part, Picture, Section, Table
from tracewarehouse.report.data import Asked
from tracewarehouse.report.tables import listed
from tracewarehouse.report.wording import part, plural, time

TOP, RANKS = 8, 20


def comms(asked: Asked) -> Section:
    """The section."""
    total = asked.one(
        "SELECT sum(comm_ns)::BIGINT AS comm, sum(overlap_ns)::BIGINT AS hidden,"
        " sum(exposed_ns)::BIGINT AS bare FROM comm_comp_overlap",
        "comm_comp_overlap",
    )
    on_gpu, met = bool(total["comm"]), asked.has("collective_waits")
    if not on_gpu and not met:
        why = asked.lacking("collective_waits") or "no collectives recorded"
        return Section("communication", "Communication", f"No communication is told: {why}.")
    said = "Collectives ran on the host only, so nothing is told of what computation on GPUs hid."
    if on_gpu:
        said = (
            f"Communication ran for {asked.each(total['comm'])} per rank; computation hid "
            f"{part(total['hidden'], total['comm'])} of it, {asked.each(total['bare'])} a rank were exposed."
        )
    parts = [*([_overlap(asked)] if on_gpu else []), *(_meetings(asked) if met else [_alone(asked)])]
    tables: list[Table] = []
    if on_gpu:
        tables.append(listed(asked, "comm_comp_overlap", "Communication of each device, and what hid it"))
        if asked.has("comm_by_group"):
            tables.append(
                listed(
                    asked, "comm_by_group", "Communication by process group", order="exposed_ns DESC, rank"
                )
            )
    if met:
        tables.append(listed(asked, "stragglers", "Ranks that others wait for"))
        tables.append(
            listed(
                asked,
                "collective_waits",
                "Single collectives, the longest waits first",
                order="wait_ns DESC NULLS LAST, rank, event_id",
            )
        )
    return Section("communication", "Communication", said, tuple(parts), tuple(tables))


def _alone(asked: Asked) -> Part:
    return Part(
        "Who waits for whom", f"Waiting at collectives is not told: {asked.lacking('collective_waits')}."
    )


def _overlap(asked: Asked) -> Part:
    rows = asked.rows(
        """
        SELECT rank, sum(exposed_ns)::BIGINT AS exposed_ns, sum(overlap_ns)::BIGINT AS overlap_ns
        FROM comm_comp_overlap GROUP BY rank ORDER BY exposed_ns DESC, rank
        """
    )
    shown = rows if len(rows) <= RANKS else rows[: RANKS // 2] + rows[-RANKS // 2 :]
    pieces = [
        Piece(
            str(row["rank"]),
            name,
            row[column],
            name,
            f"rank {row['rank']}: {time(row[column])} {told}",
        )
        for row in shown
        for name, column, told in (
            ("exposed_comm", "exposed_ns", "exposed"),
            ("hidden_comm", "overlap_ns", "hidden by computation"),
        )
    ]
    spec = stacks(pieces, [str(row["rank"]) for row in shown], ("exposed_comm", "hidden_comm"), "ns", PAGE)
    said = f"Rank {rows[0]['rank']} has the most exposed communication, {time(rows[0]['exposed_ns'])}"
    said += f"; rank {rows[-1]['rank']} the least, {time(rows[-1]['exposed_ns'])}." if len(rows) > 1 else "."
    cut = "" if len(shown) == len(rows) else f": {len(shown)} of {len(rows)} ranks, from both ends"
    return Part("Exposed and hidden", said, (Picture(f"Communication by rank{cut}", spec),))


def _meetings(asked: Asked) -> list[Part]:
    rows = asked.rows(
        """
        SELECT collective || ' of ' || members || ' ranks' AS name, count(*) AS count,
          sum(wait_ns)::BIGINT AS wait_ns, sum(transfer_ns)::BIGINT AS transfer_ns
        FROM collective_waits WHERE transfer_ns IS NOT NULL
        GROUP BY name ORDER BY sum(dur_ns) DESC, name
        """
    )
    unmatched = asked.one("SELECT count(*) AS count FROM collective_waits WHERE instance_id IS NULL")["count"]
    if not rows:
        return [Part("Collectives", f"{plural(unmatched, 'collective')} could not be matched between ranks.")]
    pieces = [
        Piece(
            row["name"],
            name,
            (row[column] or 0) / asked.ranks,
            name,
            f"{row['name']}, {row['count']:,} times: {asked.each(row[column] or 0)} {told} per rank",
        )
        for row in rows[:TOP]
        for name, column, told in (
            ("exposed_comm", "transfer_ns", "transfer"),
            ("comm_wait", "wait_ns", "waiting for the last rank"),
        )
    ]
    spec = stacks(
        pieces, [row["name"] for row in rows[:TOP]], ("exposed_comm", "comm_wait"), "ns", PAGE, what=""
    )
    waited = sum(row["wait_ns"] or 0 for row in rows)
    there = waited + sum(row["transfer_ns"] or 0 for row in rows)
    said = f"Of the time in matched collectives, {part(waited, there)} was waiting for the last rank."
    if unmatched:
        said += f" {plural(unmatched, 'collective')} could not be matched."
    return [
        Part("Collectives", said, (Picture("Transfer and waiting per rank", spec),)),
        *_ranks(asked),
    ]


def _ranks(asked: Asked) -> list[Part]:
    rows = asked.rows(
        "SELECT rank, caused_wait_ns, share, arrived_last, collectives, waiting_ns FROM stragglers"
        " WHERE caused_wait_ns IS NOT NULL ORDER BY caused_wait_ns DESC, rank",
        "stragglers",
    )
    if not rows:
        return []
    first = rows[0]
    if not first["caused_wait_ns"]:
        return [Part("Who waits for whom", "No rank waited for another at a collective.")]
    caused = [
        Bar(
            f"rank {row['rank']}",
            row["caused_wait_ns"],
            "comm_wait",
            time(row["caused_wait_ns"]),
            f"rank {row['rank']}: others waited {time(row['caused_wait_ns'])} for it; last at"
            f" {row['arrived_last']:,} of {row['collectives']:,} collectives",
        )
        for row in rows[:TOP]
        if row["caused_wait_ns"]
    ]
    waiting = [
        Bar(
            f"rank {row['rank']}",
            row["waiting_ns"],
            "comm_wait",
            time(row["waiting_ns"]),
            f"rank {row['rank']}: waited {time(row['waiting_ns'])} itself",
        )
        for row in sorted(rows, key=lambda row: (-row["waiting_ns"], row["rank"]))[:TOP]
    ]
    said = (
        f"Most waiting is for rank {first['rank']}: {part(first['share'] or 0, 1)} of it, "
        f"last at {first['arrived_last']:,} of its {first['collectives']:,} collectives."
    )
    return [
        Part("Waited for", said, (Picture("What the others waited, added up", bars(caused, PAGE)),)),
        Part(
            "Waiting",
            f"Rank {waiting[0].label.removeprefix('rank ')} waits the longest itself: {waiting[0].text}.",
            (Picture("Time in which a rank waited at collectives", bars(waiting, PAGE)),),
        ),
    ]
