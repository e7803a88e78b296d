"""Communication: overlap with computation, time by collective, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tracewarehouse.present.plot.charts import Bar, Segment, stacked_bars
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import COMPLETE, ReportData, Row, Steps, complete_steps
from tracewarehouse.present.report.document import (
    Card,
    Command,
    Listing,
    Section,
    bar_card,
    chart_card,
    duration,
    percent,
    tables,
)

_MAX_BARS, _MAX_RANKS = 8, 20
_ON_GPU = (
    Listing("comm_comp_overlap", "Communication and overlap per device"),
    Listing("comm_by_group", "Communication by process group", "exposed_ns DESC, rank"),
)
_OF_WAITS = (
    Listing("stragglers", "Stragglers: ranks that other ranks wait for"),
    Listing("collective_waits", "Individual collectives, longest wait first"),
)
# Category of the chart, column, and words.
_OVERLAP = (
    ("exposed_comm", "exposed_ns", "exposed"),
    ("hidden_comm", "overlap_ns", "overlapped with computation"),
)
_PARTS = (
    ("exposed_wait", "wait_ns", "waiting for other ranks"),
    ("exposed_transfer", "transfer_ns", "transfer"),
    ("exposed_unassigned", "unassigned_ns", "waiting or transfer"),
)
_TRANSFERS = (
    ("exposed_transfer", "transfer_ns", "transfer"),
    ("comm_wait", "wait_ns", "waiting for the last rank"),
)
_OVERLAPPED = """
SELECT rank, sum(exposed_ns)::BIGINT AS exposed_ns, sum(overlap_ns)::BIGINT AS overlap_ns
FROM comm_comp_overlap GROUP BY rank ORDER BY exposed_ns DESC, rank
"""
_EXPOSED = f"""
WITH
  complete AS (SELECT rank, step, category, category_ns FROM step_account {COMPLETE}),
  steps AS (SELECT rank, count(DISTINCT step) AS count FROM complete GROUP BY rank),
  mean AS (SELECT rank, category, category_ns / count AS ns FROM complete JOIN steps USING (rank))
SELECT rank, wait_ns + transfer_ns + unassigned_ns AS exposed_ns, * EXCLUDE rank FROM (
  SELECT rank,
    coalesce(sum(ns) FILTER (category = 'exposed_wait'), 0) AS wait_ns,
    coalesce(sum(ns) FILTER (category = 'exposed_transfer'), 0) AS transfer_ns,
    coalesce(sum(ns) FILTER (category = 'exposed_unassigned'), 0) AS unassigned_ns
  FROM mean GROUP BY rank
)
ORDER BY exposed_ns DESC, rank
"""
# Concurrent waits of a rank count once: all of them, and those for one straggler.
_WAITS = """
WITH
  wait AS (
    SELECT rank, straggler_rank, start_ns, start_ns + wait_ns AS end_ns,
      coalesce(max(end_ns) OVER of_rank, 0) AS counted_ns,
      coalesce(max(end_ns) OVER of_pair, 0) AS pair_counted_ns
    FROM collective_waits {complete}
    WHERE wait_ns IS NOT NULL
    WINDOW
      of_rank AS (
        PARTITION BY rank ORDER BY start_ns, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ),
      of_pair AS (
        PARTITION BY rank, straggler_rank ORDER BY start_ns, event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      )
  ),
  caused AS (
    SELECT straggler_rank AS rank, sum(greatest(end_ns - greatest(start_ns, pair_counted_ns), 0)) AS ns
    FROM wait GROUP BY straggler_rank
  ),
  waited AS (
    SELECT rank, sum(greatest(end_ns - greatest(start_ns, counted_ns), 0)) AS ns FROM wait GROUP BY rank
  )
SELECT stragglers.rank, coalesce(caused.ns, 0) / {times} AS caused_wait_ns,
  coalesce(caused.ns, 0) / nullif((SELECT sum(ns) FROM caused), 0) AS share, arrived_last, collectives,
  coalesce(waited.ns, 0) / {times} AS waiting_ns
FROM stragglers
LEFT JOIN caused USING (rank)
LEFT JOIN waited USING (rank)
WHERE caused_wait_ns IS NOT NULL
ORDER BY 2 DESC, stragglers.rank
"""
_COLLECTIVES = """
SELECT collective || ' of ' || members || ' ranks' AS name, count(*) AS count,
  sum(wait_ns)::BIGINT AS wait_ns, sum(transfer_ns)::BIGINT AS transfer_ns
FROM collective_waits {complete}
WHERE transfer_ns IS NOT NULL
GROUP BY name ORDER BY sum(dur_ns) DESC, name
"""


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
            f"{percent(total['overlapped'], total['comm'])} of communication overlapped with computation; "
            f"{_exposed(data, total)}."
        )
    cards = [_overlap_card(data)] if on_gpu else []
    if has_waits:
        cards += _wait_cards(data)
    else:
        reason = data.missing_reason("collective_waits")
        cards.append(Card("Stragglers", f"Wait times at collectives are unknown: {reason}."))
    printed = tables(data, *(_ON_GPU if on_gpu else ()), *(_OF_WAITS if has_waits else ()))
    unknown = _unknown(data)
    record = "nsys profile --cuda-graph-trace=node PROGRAM"
    commands = (Command(record, "recording with the kernels inside graphs"),) if unknown else ()
    return Section(
        "communication", "Communication", summary, cards, printed, statements=unknown, commands=commands
    )


def _unknown(data: ReportData) -> tuple[str, ...]:
    """That graphs were recorded without their kernels, if any was: they may be computation."""
    sql = "SELECT count(*) > 0 AS found FROM quality WHERE rule = 'graph_level_trace'"
    if not data.row(sql, "quality")["found"]:
        return ()
    return (
        "The kernels inside CUDA graphs were not recorded: communication beside a graph counts as exposed,"
        " although it may be overlapped.",
    )


def _exposed(data: ReportData, total: Row) -> str:
    """The exposed communication of the mean step; without complete steps that of the recording."""
    steps = complete_steps(data)
    if steps is None or not data.has_rows("step_account"):
        return (
            f"{data.per_rank(total['exposed'])} of {data.per_rank(total['comm'])} {data.on_rank} was exposed"
        )
    row = data.row(
        f"""
        SELECT coalesce(sum(category_ns), 0)::BIGINT AS ns FROM step_account {COMPLETE}
        WHERE category IN ('exposed_wait', 'exposed_transfer', 'exposed_unassigned')
        """
    )
    ns = row["ns"] / steps.count
    return f"{duration(ns)} per step was exposed, {percent(ns, steps.period_ns)} of the step"


def _overlap_card(data: ReportData) -> Card:
    """Exposed communication of each rank: its parts per step, else next to the overlapped part."""
    steps = complete_steps(data)
    by_step = [] if steps is None or not data.has_rows("step_account") else data.rows(_EXPOSED)
    rows = by_step or data.rows(_OVERLAPPED)
    states: Sequence[tuple[str, str, str]] = _PARTS if by_step else _OVERLAP
    per_step = " per step" if by_step else ""
    title = f"Exposed {'' if by_step else 'and overlapped '}communication"
    shown = rows if len(rows) <= _MAX_RANKS else rows[: _MAX_RANKS // 2] + rows[-_MAX_RANKS // 2 :]
    segments = []
    for row, (category, column, state) in product(shown, states):
        if row[column] or not by_step:
            description = f"rank {row['rank']}: {duration(row[column])} {state}{per_step}"
            segments.append(Segment(str(row["rank"]), category, row[column], category, description))
    ranks, categories = [str(row["rank"]) for row in shown], [category for category, _, _ in states]
    spec = stacked_bars(segments, ranks, categories)
    longest = f"{duration(rows[0]['exposed_ns'])}{per_step}"
    text = f"Rank {rows[0]['rank']} has the most exposed communication ({longest})"
    if len(rows) > 1:
        text += f", rank {rows[-1]['rank']} the least ({duration(rows[-1]['exposed_ns'])})"
    limit = "" if len(shown) == len(rows) else f": {len(shown)} of {len(rows)} ranks, from both ends"
    caption = f"{title}{per_step} by rank" if by_step else "Communication in the recording, by rank"
    legend = tuple(
        (category, state) for category, column, state in states if any(row[column] for row in shown)
    )
    return chart_card(title, f"{text}.", f"{caption}{limit}", spec, legend)


def _wait_cards(data: ReportData) -> list[Card]:
    steps = complete_steps(data)
    rows = [] if steps is None else data.rows(_COLLECTIVES.format(complete=COMPLETE))
    if not rows:
        steps, rows = None, data.rows(_COLLECTIVES.format(complete=""))
    unmatched = data.row("SELECT count(*) AS count FROM collective_waits WHERE instance_id IS NULL")["count"]
    unmatched_text = f"{plural(unmatched, 'collective')} could not be matched across ranks."
    if not rows:
        return [Card("Collectives", unmatched_text)]
    wait_ns = sum(row["wait_ns"] or 0 for row in rows)
    total_ns = wait_ns + sum(row["transfer_ns"] or 0 for row in rows)
    share = percent(wait_ns, total_ns)
    sentence = f"{share} of the time in matched collectives was spent waiting for the last rank."
    if unmatched:
        sentence += f" {unmatched_text}"
    return [_collectives_card(data, rows[:_MAX_BARS], steps, sentence), *_straggler_cards(data)]


def _collectives_card(data: ReportData, rows: Sequence[Row], steps: Steps | None, text: str) -> Card:
    times, per_what = (data.ranks, data.on_rank) if steps is None else (steps.count, "per step")
    segments = []
    for row, (category, column, state) in product(rows, _TRANSFERS):
        name, ns = row["name"], (row[column] or 0) / times
        description = f"{name}, {row['count']:,} times: {duration(ns)} {state} {per_what}"
        segments.append(Segment(name, category, ns, category, description))
    names, categories = [row["name"] for row in rows], [category for category, _, _ in _TRANSFERS]
    spec = stacked_bars(segments, names, categories, axis_title="")
    per_what = "per rank in the recording" if steps is None else "per step, mean of ranks"
    legend = tuple((category, state) for category, _, state in _TRANSFERS)
    return chart_card("Collectives", text, f"Transfer and wait time {per_what}", spec, legend)


def _straggler_cards(data: ReportData) -> list[Card]:
    per_step, complete, times = "", "", "1"
    if complete_steps(data) is not None:
        per_step, complete = " per step", COMPLETE
        times = "(SELECT count(DISTINCT step) FROM step_summary WHERE NOT partial)"
    rows = data.rows(_WAITS.format(complete=complete, times=times), "stragglers")
    if not rows:
        return []
    if not rows[0]["caused_wait_ns"]:
        return [Card("Stragglers", "No rank waited for another at a collective.")]
    longest = sorted(rows, key=lambda row: (-row["waiting_ns"], row["rank"]))[:_MAX_BARS]
    bars = [
        _rank_bar(row, "waiting_ns", f"waited {duration(row['waiting_ns'])} for other ranks{per_step}")
        for row in longest
    ]
    sentence = f"Rank {longest[0]['rank']} waits longest: {duration(longest[0]['waiting_ns'])}{per_step}."
    title = f"Time spent waiting at collectives{per_step}"
    return [_wait_caused_card(data, rows, per_step), bar_card("Wait time", sentence, title, bars)]


def _wait_caused_card(data: ReportData, rows: Sequence[Row], per_step: str) -> Card:
    """What a rank costs the others: the mean of all ranks but itself."""
    other_ranks = max(data.ranks - 1, 1)
    rows = [{**row, "caused_wait_ns": row["caused_wait_ns"] / other_ranks} for row in rows]
    straggler = rows[0]
    bars = []
    for row in filter(lambda row: row["caused_wait_ns"], rows[:_MAX_BARS]):
        last = f"last at {row['arrived_last']:,} of {row['collectives']:,} collectives"
        description = f"each other rank waited {duration(row['caused_wait_ns'])} for it{per_step}; {last}"
        bars.append(_rank_bar(row, "caused_wait_ns", description))
    sentence = (
        f"Rank {straggler['rank']} causes the most waiting: {percent(straggler['share'] or 0, 1)} of it. "
        f"It was last at {straggler['arrived_last']:,} of its {straggler['collectives']:,} collectives."
    )
    title = f"Wait of the mean other rank{per_step or ' in the recording'}"
    return bar_card("Wait caused", sentence, title, bars)


def _rank_bar(row: Row, column: str, description: str) -> Bar:
    rank, ns = f"rank {row['rank']}", row[column]
    return Bar(rank, ns, "comm_wait", duration(ns), f"{rank}: {description}")
