"""Overview: how long steps took, where the GPUs' time went, over all ranks and rank by rank."""

from __future__ import annotations

from collections.abc import Sequence

from tracewarehouse.plot import PAGE
from tracewarehouse.plot.bars import Bar, bars
from tracewarehouse.plot.grids import Cell, Piece, heat, stacks
from tracewarehouse.plot.lines import Span, spans
from tracewarehouse.plot.theme import COLOURS
from tracewarehouse.report.content import Part, Picture, Section, Table
from tracewarehouse.report.data import Asked, Row
from tracewarehouse.report.tables import listed
from tracewarehouse.report.wording import MEANINGS, and_list, part, plural, time

PARTS = [name for name in COLOURS if name in MEANINGS]
ENDS = 10  # ranks shown of either end, where there are more than twice as many


def overview(asked: Asked) -> Section:
    """The section."""
    parts = [_steps(asked), *_split(asked)]
    tables: list[Table] = []
    if asked.has("step_summary"):
        tables.append(listed(asked, "step_summary", "How long each step took"))
    if asked.has("temporal_breakdown"):
        tables.append(listed(asked, "temporal_breakdown", "Where each device's time went"))
        tables.append(
            listed(asked, "step_account", "Where each step's period went", order="category_ns DESC")
        )
    return Section("overview", "Overview", _sentence(asked), tuple(parts), tuple(tables))


# Complete steps; where there are none, those that the recording may have cut.
_KNOWN = "(NOT partial OR NOT EXISTS (FROM step_summary WHERE NOT partial))"


def kind(times: Row) -> str:
    """What `step_times` are of."""
    return "step that may be cut" if times["partial"] else "complete step"


def step_times(asked: Asked) -> Row | None:
    """Median (of the means of ranks), least and most of the steps, and how many; None without steps."""
    if not asked.has("step_summary"):
        return None
    return asked.one(
        f"""
        WITH steps AS (
          SELECT step, avg(period_ns) AS mean_ns, min(period_ns) AS low_ns, max(period_ns) AS high_ns
          FROM step_summary
          WHERE {_KNOWN}
          GROUP BY step
        )
        SELECT median(mean_ns) AS median_ns, min(low_ns) AS low_ns, max(high_ns) AS high_ns,
          count(*) AS count, NOT EXISTS (FROM step_summary WHERE NOT partial) AS partial,
          arg_max(step, mean_ns) AS slowest, max(mean_ns) AS slowest_ns
        FROM steps
        """
    )


def shares(asked: Asked) -> dict[str, int]:
    """Part → ns over all ranks' windows, the largest first; empty without GPU rows."""
    rows = asked.rows(
        "SELECT category, sum(category_ns)::BIGINT AS ns FROM window_account GROUP BY category"
        " ORDER BY ns DESC, category",
        "window_account",
    )
    return {row["category"]: row["ns"] for row in rows}


def _sentence(asked: Asked) -> str:
    told = shares(asked)
    if not told:
        return f"Nothing is known of GPUs here: {asked.lacking('window_account') or 'no GPU rows recorded'}."
    whole, idle = sum(told.values()), sum(ns for name, ns in told.items() if name.startswith("idle_"))
    did = [f"{words} {part(told[name], whole)}" for name, words in _DID.items() if told.get(name)]
    gpus = "the GPU" if asked.ranks == 1 else f"the GPUs of {asked.ranks:,} ranks"
    did.append(f"stood idle {part(idle, whole)}")
    said = f"Of the time between first and last work, {gpus} {and_list(did)}"
    causes = [name for name in told if name.startswith("idle_")]
    if not idle:
        return f"{said}."
    cause = MEANINGS[causes[0]].removeprefix("idle: ")
    return f"{said}, most of that: {cause} ({part(told[causes[0]], whole)})."


_DID = {
    "compute": "computed",
    "exposed_comm": "communicated without computing",
    "exposed_memory": "copied or set memory",
    "other": "did other work",
}


def _steps(asked: Asked) -> Part:
    found = step_times(asked)
    if found is None:
        return Part("Step time", f"No profiler steps are told: {asked.lacking('step_summary')}.")
    rows = asked.rows(
        f"""
        SELECT step, min(period_ns) AS low, median(period_ns) AS middle, max(period_ns) AS high
        FROM step_summary WHERE {_KNOWN} GROUP BY step ORDER BY step
        """
    )
    said = f"{plural(found['count'], kind(found))}, the median {time(found['median_ns'])}"
    if found["count"] > 1:
        said += (
            f"; from {time(found['low_ns'])} to {time(found['high_ns'])}, "
            f"step {found['slowest']} the slowest ({time(found['slowest_ns'])})"
        )
    many = asked.ranks > 1
    told = [
        Span(
            row["step"],
            row["low"],
            row["middle"],
            row["high"],
            f"step {row['step']}: {time(row['middle'])}"
            + (f", {time(row['low'])} to {time(row['high'])} over ranks" if many else ""),
        )
        for row in rows
    ]
    title = "Step time: the median rank, and the fastest to the slowest" if many else "Step time"
    picture = Picture(title, spans(told, "period", "step", "ns", PAGE))
    return Part("Step time", said + ".", (picture,) if len(told) > 1 else ())


def _split(asked: Asked) -> list[Part]:
    told = shares(asked)
    if not told:
        return []
    whole = sum(told.values())
    rows = [
        Bar(
            MEANINGS[name],
            ns / whole,
            name,
            part(ns, whole),
            f"{MEANINGS[name]}: {part(ns, whole)}, {asked.each(ns)} per rank",
        )
        for name, ns in told.items()
    ]
    first = next(iter(told))
    said = (
        f"The largest part is {MEANINGS[first]}: {asked.each(told[first])} of {asked.each(whole)} per rank."
    )
    title = "All ranks together" if asked.ranks > 1 else "Parts of the GPU's time"
    parts = [Part("Where GPU time went", said, (Picture(title, bars(rows, PAGE)),))]
    return parts + (_by_rank(asked) if asked.ranks > 1 else [])


def _by_rank(asked: Asked) -> list[Part]:
    rows = asked.rows(
        """
        SELECT rank, category, sum(category_ns)::BIGINT AS ns,
          sum(sum(category_ns)) OVER (PARTITION BY rank)::BIGINT AS window_ns,
          sum(sum(category_ns) FILTER (category = 'compute')) OVER (PARTITION BY rank)::BIGINT AS compute_ns
        FROM window_account GROUP BY rank, category ORDER BY compute_ns DESC NULLS LAST, rank, category
        """
    )
    ranks = list(dict.fromkeys(row["rank"] for row in rows))
    compute = {row["rank"]: row["compute_ns"] or 0 for row in rows}
    said = (
        f"Rank {ranks[0]} computes the most ({time(compute[ranks[0]])}), "
        f"rank {ranks[-1]} the least ({time(compute[ranks[-1]])})."
    )
    shown = ranks if len(ranks) <= 2 * ENDS else ranks[:ENDS] + ranks[-ENDS:]
    title = "By rank, the most computation first"
    if len(shown) < len(ranks):
        title += f": {ENDS} ranks with the most, {ENDS} with the least of {len(ranks)}"
    picture = Picture(title, _stacked([row for row in rows if row["rank"] in set(shown)], shown))
    parts = [Part("Rank by rank", said, (picture,))]
    return parts + ([_all_ranks(rows)] if len(ranks) > 12 else [])


def _all_ranks(rows: Sequence[Row]) -> Part:
    said = "Each row is a part of the time: where it stands out, that rank differs from the others."
    return Part(
        "All ranks", said, (Picture("The stronger, the larger the share of the rank's time", _map(rows)),)
    )


def _stacked(rows: Sequence[Row], ranks: Sequence[int]) -> dict[str, object]:
    pieces = [
        Piece(
            str(row["rank"]),
            row["category"],
            row["ns"],
            row["category"],
            f"rank {row['rank']}: {MEANINGS[row['category']]} {time(row['ns'])},"
            f" {part(row['ns'], row['window_ns'])}",
        )
        for row in rows
    ]
    return stacks(pieces, [str(rank) for rank in ranks], PARTS, "ns", PAGE)


COLUMNS = 128  # of a map of ranks; more are taken together
LEAST = 0.005  # share of a rank's time, below which on all ranks a part is not on the map


def _map(rows: Sequence[Row]) -> dict[str, object]:
    ranks = sorted({row["rank"] for row in rows})
    by = -(-len(ranks) // COLUMNS)
    place = {rank: at // by for at, rank in enumerate(ranks)}
    first = {place[rank]: rank for rank in reversed(ranks)}
    sums: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        held = sums.setdefault((place[row["rank"]], row["category"]), [0, 0])
        held[0] += row["ns"]
        held[1] += row["window_ns"]
    most = {
        name: max(ns / whole for (_, part), (ns, whole) in sums.items() if part == name) for _, name in sums
    }
    known = [name for name in PARTS if most.get(name, 0) > LEAST]
    last = f" and the {by - 1} after it" if by > 1 else ""
    cells = [
        Cell(
            first[at],
            _SHORT[name],
            ns / window_ns / most[name],
            name,
            f"rank {first[at]}{last}: {MEANINGS[name]} {part(ns, window_ns)}",
        )
        for (at, name), (ns, window_ns) in sums.items()
        if name in known
    ]
    return heat(cells, [_SHORT[name] for name in known], PAGE)


_SHORT = {
    "compute": "computation",
    "exposed_comm": "exposed comm.",
    "exposed_memory": "exposed memory",
    "other": "other work",
    "idle_host": "idle: host",
    "idle_dataloader": "idle: data",
    "idle_sync": "idle: sync",
    "idle_kernel_wait": "idle: short",
    "idle_other": "idle: long",
    "idle_unknown": "idle: unknown",
    "idle_outside": "outside",
}
