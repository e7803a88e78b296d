"""Overview: step times, and where GPU time went in total and per rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tracewarehouse.display_names import CATEGORIES, EXPOSED, SHORT_CATEGORIES, idle_cause
from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.bars import Bar, bar_chart
from tracewarehouse.present.plot.grids import Cell, Segment, heat_map, stacked_bars
from tracewarehouse.present.plot.lines import RangeBar, range_bars
from tracewarehouse.present.plot.theme import COLORS, Spec
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.account import Account, breakdown
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import Card, Figure, Section, Table
from tracewarehouse.present.report.tables import first_rows
from tracewarehouse.present.report.text import and_list, duration, percent

_STACK_ORDER = [name for name in COLORS if name in CATEGORIES]
_ENDS = 10  # ranks shown of either end, if there are more than twice as many
_MIN_HEAT_MAP_RANKS = 13
_MAX_HEAT_MAP_COLUMNS = 128  # more ranks share columns
_MIN_HEAT_MAP_SHARE = 0.005  # a category with a smaller share on all ranks has no row
# Complete steps; possibly truncated ones if there are no others.
_STEPS = "(NOT partial OR NOT EXISTS (FROM step_summary WHERE NOT partial))"


def overview_section(data: ReportData) -> Section:
    """The section."""
    cards = [_step_card(data), *_breakdown_cards(data)]
    tables: list[Table] = []
    if data.has_rows("step_summary"):
        tables.append(first_rows(data, "step_summary", "Duration of each step"))
    if data.has_rows("temporal_breakdown"):
        tables.append(first_rows(data, "temporal_breakdown", "GPU time per device"))
        tables.append(first_rows(data, "step_account", "Breakdown of each step", order="category_ns DESC"))
    return Section("overview", "Overview", _summary(data), tuple(cards), tuple(tables))


def step_kind(times: Row) -> str:
    """The kind of steps that `step_times` covers."""
    return "possibly truncated step" if times["partial"] else "complete step"


def step_times(data: ReportData) -> Row | None:
    """Median (of rank means), minimum, maximum and number of steps; None without steps."""
    if not data.has_rows("step_summary"):
        return None
    return data.row(
        f"""
        WITH steps AS (
          SELECT step, avg(period_ns) AS mean_ns, min(period_ns) AS low_ns, max(period_ns) AS high_ns
          FROM step_summary
          WHERE {_STEPS}
          GROUP BY step
        )
        SELECT median(mean_ns) AS median_ns, min(low_ns) AS low_ns, max(high_ns) AS high_ns,
          count(*) AS count, NOT EXISTS (FROM step_summary WHERE NOT partial) AS partial,
          arg_max(step, mean_ns) AS slowest, max(mean_ns) AS slowest_ns
        FROM steps
        """
    )


def _summary(data: ReportData) -> str:
    account = breakdown(data)
    if account is None:
        reason = data.missing_reason("window_account") or "no GPU activities recorded"
        return f"This run has no GPU time to report: {reason}."
    times, total, idle = account.times, account.total_ns, account.idle
    shares = [f"computation {percent(times['compute'], total)}"] if times.get("compute") else []
    shares += _exposed_shares(times, total)
    shares += [
        f"{CATEGORIES[name]} {percent(times[name], total)}"
        for name in ("exposed_memory", "other")
        if times.get(name)
    ]
    shares.append(f"idle {percent(sum(idle.values()), total)}")
    mean = "" if account.samples == 1 else "mean "
    ranks = "" if data.ranks == 1 else f" of {data.ranks:,} ranks"
    text = f"Of the {mean}{account.whole}{ranks}, {account.mean(total)}: {and_list(shares)}"
    if not idle:
        return f"{text}."
    cause = next(iter(idle))
    return f"{text}. Main idle cause: {idle_cause(cause)} ({percent(idle[cause], total)})."


def _exposed_shares(times: Mapping[str, int], total: int) -> Iterator[str]:
    """Exposed communication, and how much of it is waiting."""
    exposed, wait = sum(times.get(name, 0) for name in EXPOSED), times.get("exposed_wait", 0)
    if exposed:
        waiting = f" ({percent(wait, total)} waiting for the last rank)" if wait else ""
        yield f"exposed communication {percent(exposed, total)}{waiting}"


def _step_card(data: ReportData) -> Card:
    times = step_times(data)
    if times is None:
        reason = data.missing_reason("step_summary")
        return Card("Step time", f"The trace has no ProfilerStep annotations ({reason}).")
    text = f"{plural(times['count'], step_kind(times))}, median {duration(times['median_ns'])}"
    if times["count"] > 1:
        over = (" over all ranks", "mean ") if data.ranks > 1 else ("", "")
        text += (
            f"; range{over[0]} {duration(times['low_ns'])} to {duration(times['high_ns'])}, "
            f"slowest: step {times['slowest']} ({over[1]}{duration(times['slowest_ns'])})"
        )
    bars = _step_bars(data)
    title = "Step time: median rank, with the range over ranks" if data.ranks > 1 else "Step time"
    figure = Figure(title, range_bars(bars, "period", "step", "ns", PAGE))
    return Card("Step time", f"{text}.", (figure,) if len(bars) > 1 else ())


def _step_bars(data: ReportData) -> list[RangeBar]:
    rows = data.rows(
        f"""
        SELECT step, min(period_ns) AS low, median(period_ns) AS middle, max(period_ns) AS high
        FROM step_summary WHERE {_STEPS} GROUP BY step ORDER BY step
        """
    )
    bars = []
    for row in rows:
        text = f"step {row['step']}: {duration(row['middle'])}"
        if data.ranks > 1:
            text += f", {duration(row['low'])} to {duration(row['high'])} over ranks"
        bars.append(RangeBar(row["step"], row["low"], row["middle"], row["high"], text))
    return bars


def _breakdown_cards(data: ReportData) -> list[Card]:
    account = breakdown(data)
    if account is None:
        return []
    total = account.total_ns
    bars = [
        Bar(
            CATEGORIES[name],
            ns / total,
            name,
            f"{account.mean(ns)}, {percent(ns, total)}",
            f"{CATEGORIES[name]}: {percent(ns, total)}, {account.mean_text(ns)}",
        )
        for name, ns in account.times.items()
    ]
    largest = next(iter(account.times))
    largest_ns = account.mean(account.times[largest])
    text = f"Largest part: {CATEGORIES[largest]}, {largest_ns} of {account.mean(total)}."
    title = f"Parts of the {account.whole}; the full width is 100 %"
    if data.ranks > 1:
        title = f"Mean over ranks. {title}"
    figure = Figure(title, bar_chart(bars, PAGE, high=1.0))
    card = Card("Where the time goes", text, (figure,))
    return [card, *(_rank_cards(data, account) if data.ranks > 1 else [])]


def _rank_cards(data: ReportData, account: Account) -> list[Card]:
    rows = data.rows(
        f"""
        SELECT rank, category, sum(category_ns)::BIGINT AS ns,
          sum(sum(category_ns)) OVER (PARTITION BY rank)::BIGINT AS window_ns,
          sum(sum(category_ns) FILTER (category = 'compute')) OVER (PARTITION BY rank)::BIGINT AS compute_ns
        FROM ({account.rows}) GROUP BY rank, category ORDER BY compute_ns DESC NULLS LAST, rank, category
        """
    )
    ranks = list(dict.fromkeys(row["rank"] for row in rows))
    compute = {row["rank"]: row["compute_ns"] or 0 for row in rows}
    text = (
        f"Rank {ranks[0]} has the most computation ({duration(compute[ranks[0]])}), "
        f"rank {ranks[-1]} the least ({duration(compute[ranks[-1]])})."
    )
    shown = ranks if len(ranks) <= 2 * _ENDS else ranks[:_ENDS] + ranks[-_ENDS:]
    title = "Ranks sorted by computation"
    if len(shown) < len(ranks):
        title += f": first {_ENDS} and last {_ENDS} of {len(ranks)}"
    stacks = _stacked_ranks([row for row in rows if row["rank"] in set(shown)], shown)
    cards = [Card("GPU time by rank", text, (Figure(title, stacks),))]
    return cards if len(ranks) < _MIN_HEAT_MAP_RANKS else [*cards, _all_ranks_card(rows)]


def _all_ranks_card(rows: Sequence[Row]) -> Card:
    text = "Each row is a category; stronger colors mark ranks with a larger share."
    figure = Figure("Share of each rank's time by category", _rank_heat_map(rows))
    return Card("All ranks", text, (figure,))


def _stacked_ranks(rows: Sequence[Row], ranks: Sequence[int]) -> Spec:
    segments = [
        Segment(
            str(row["rank"]),
            row["category"],
            row["ns"],
            row["category"],
            f"rank {row['rank']}: {CATEGORIES[row['category']]} {duration(row['ns'])},"
            f" {percent(row['ns'], row['window_ns'])}",
        )
        for row in rows
    ]
    return stacked_bars(segments, [str(rank) for rank in ranks], _STACK_ORDER, "ns", PAGE)


def _rank_heat_map(rows: Sequence[Row]) -> Spec:
    """One column per rank, or per group of consecutive ranks; each row is scaled to its largest share."""
    ranks = sorted({row["rank"] for row in rows})
    group_size = -(-len(ranks) // _MAX_HEAT_MAP_COLUMNS)
    column_of = {rank: at // group_size for at, rank in enumerate(ranks)}
    first_rank = {column_of[rank]: rank for rank in reversed(ranks)}
    sums: dict[tuple[int, str], tuple[int, int]] = {}
    for row in rows:
        key = column_of[row["rank"]], row["category"]
        ns, window_ns = sums.get(key, (0, 0))
        sums[key] = ns + row["ns"], window_ns + row["window_ns"]
    largest: dict[str, float] = {}
    for (_, name), (ns, window_ns) in sums.items():
        largest[name] = max(largest.get(name, 0.0), ns / window_ns)
    shown = [name for name in _STACK_ORDER if largest.get(name, 0) > _MIN_HEAT_MAP_SHARE]
    others = f" and the {group_size - 1} after it" if group_size > 1 else ""
    cells = [
        Cell(
            first_rank[column],
            SHORT_CATEGORIES[name],
            ns / window_ns / largest[name],
            name,
            f"rank {first_rank[column]}{others}: {CATEGORIES[name]} {percent(ns, window_ns)}",
        )
        for (column, name), (ns, window_ns) in sums.items()
        if name in shown
    ]
    return heat_map(cells, [SHORT_CATEGORIES[name] for name in shown], PAGE)
