"""Overview: tiles and facts of a run, step times, and where GPU time went in total and per rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tracewarehouse.display_names import CATEGORIES, EXPOSED, SHORT_CATEGORIES, idle_cause
from tracewarehouse.exact_text import rank_list
from tracewarehouse.present.plot.charts import (
    Bar,
    Cell,
    RangeBar,
    Segment,
    heat_map,
    range_bars,
    stacked_bars,
)
from tracewarehouse.present.plot.parts import COLORS, Chart, format_short
from tracewarehouse.present.render.text import plural, timestamp
from tracewarehouse.present.report.data import Account, ReportData, Row, breakdown, mean_step_ns
from tracewarehouse.present.report.document import (
    Card,
    Figure,
    Listing,
    Section,
    Tile,
    and_list,
    bar_card,
    chart_card,
    duration,
    label,
    percent,
    sentence,
    tables,
)
from tracewarehouse.present.report.memory import device_label, peak_memory
from tracewarehouse.present.report.timeline import HOST_CATEGORIES
from tracewarehouse.runs.rows import notices

if TYPE_CHECKING:
    from tracewarehouse.runs.rows import RunInfo


STACK_ORDER = [name for name in COLORS if name in CATEGORIES]
_ENDS = 10  # ranks shown of either end, if there are more than twice as many
_MIN_HEAT_MAP_RANKS = 13
_MAX_HEAT_MAP_COLUMNS = 128  # more ranks share columns
_MIN_HEAT_MAP_SHARE = 0.005  # a category with a smaller share on all ranks has no row
# Complete steps; possibly truncated ones if there are no others.
_STEPS = "(NOT partial OR NOT EXISTS (FROM step_summary WHERE NOT partial))"


def overview_section(data: ReportData) -> Section:
    """The section."""
    cards = [_step_card(data), *_breakdown_cards(data)]
    printed = tables(
        data,
        Listing("step_summary", "Duration of each step"),
        Listing("temporal_breakdown", "GPU time per device"),
        Listing("step_account", "Breakdown of each step", "category_ns DESC"),
    )
    return Section("overview", "Overview", _summary(data), tuple(cards), printed)


def _step_kind(times: Row) -> str:
    """The kind of steps that `_step_times` covers."""
    return "possibly truncated step" if times["partial"] else "complete step"


def _step_times(data: ReportData) -> Row | None:
    """Mean and median (of rank means), minimum, maximum and number of steps; None without steps."""
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
        SELECT avg(mean_ns) AS mean_ns, median(mean_ns) AS median_ns, min(low_ns) AS low_ns,
          max(high_ns) AS high_ns, count(*) AS count,
          NOT EXISTS (FROM step_summary WHERE NOT partial) AS partial,
          arg_max(step, mean_ns) AS slowest, max(mean_ns) AS slowest_ns
        FROM steps
        """
    )


def _mean_step(data: ReportData, times: Row) -> float:
    """The mean complete step, else the mean of the possibly truncated ones."""
    return mean_step_ns(data) or float(times["mean_ns"])


def _summary(data: ReportData) -> str:
    account = breakdown(data)
    if account is None:
        reason = data.missing_reason("window_account") or "no GPU activities recorded"
        return f"This run has no GPU time to report: {reason}."
    times, total, idle = account.times, account.total_ns, account.idle
    shares = [f"computation {percent(times['compute'], total)}"] if times.get("compute") else []
    if exposed := sum(times.get(name, 0) for name in EXPOSED):
        wait = times.get("exposed_wait", 0)
        waiting = f" ({percent(wait, total)} waiting for the last rank)" if wait else ""
        shares.append(f"exposed communication {percent(exposed, total)}{waiting}")
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


def _step_card(data: ReportData) -> Card:
    times = _step_times(data)
    if times is None:
        reason = data.missing_reason("step_summary")
        return Card("Step time", f"The trace marks no steps ({reason}).")
    text = f"{plural(times['count'], _step_kind(times))}, mean {duration(_mean_step(data, times))}"
    if times["count"] > 1:
        over = (" over all ranks", "mean ") if data.ranks > 1 else ("", "")
        text += (
            f", median {duration(times['median_ns'])}; range{over[0]} {duration(times['low_ns'])}"
            f" to {duration(times['high_ns'])}, "
            f"slowest: step {times['slowest']} ({over[1]}{duration(times['slowest_ns'])})"
        )
    rows = data.rows(
        f"""
        SELECT step, min(period_ns) AS low, median(period_ns) AS middle, max(period_ns) AS high
        FROM step_summary WHERE {_STEPS} GROUP BY step ORDER BY step
        """
    )
    bars = []
    for row in rows:
        description = f"step {row['step']}: {duration(row['middle'])}"
        if data.ranks > 1:
            description += f", {duration(row['low'])} to {duration(row['high'])} over ranks"
        bars.append(RangeBar(row["step"], row["low"], row["middle"], row["high"], description))
    title = "Step time: median rank, with the range over ranks" if data.ranks > 1 else "Step time"
    figure = Figure(title, range_bars(bars, "period", "ns"))
    return Card("Step time", f"{text}.", (figure,) if len(bars) > 1 else ())


def _breakdown_cards(data: ReportData) -> list[Card]:
    account = breakdown(data)
    if account is None:
        return []
    total = account.total_ns
    bars = []
    for name, ns in account.times.items():
        part, share = CATEGORIES[name], percent(ns, total)
        description = f"{part}: {share}, {account.mean_text(ns)}"
        bars.append(Bar(part, ns / total, name, f"{account.mean(ns)}, {share}", description))
    largest = next(iter(account.times))
    largest_ns = account.mean(account.times[largest])
    text = f"Largest part: {CATEGORIES[largest]}, {largest_ns} of {account.mean(total)}."
    mean_note = "Mean over ranks. " if data.ranks > 1 else ""
    title = f"{mean_note}Parts of the {account.whole}; the full width is 100 %"
    card = bar_card("Where the time goes", text, title, bars, high=1.0)
    return [card, *(_rank_cards(data, account) if data.ranks > 1 else [])]


def _rank_cards(data: ReportData, account: Account) -> list[Card]:
    rows = data.rows(
        f"""
        WITH
          parts AS (SELECT rank, category, sum(category_ns)::BIGINT AS ns FROM ({account.rows}) GROUP BY ALL),
          samples AS (
            SELECT rank, greatest(count(DISTINCT step), 1) AS count FROM ({account.rows}) GROUP BY rank
          )
        SELECT rank, category, ns / count AS ns,
          sum(ns) OVER (PARTITION BY rank)::BIGINT / count AS window_ns,
          (sum(ns) FILTER (category = 'compute') OVER (PARTITION BY rank))::BIGINT / count AS compute_ns
        FROM parts JOIN samples USING (rank)
        ORDER BY compute_ns DESC NULLS LAST, rank, category
        """
    )
    ranks = list(dict.fromkeys(row["rank"] for row in rows))
    compute = {row["rank"]: row["compute_ns"] or 0 for row in rows}
    text = (
        f"Rank {ranks[0]} has the most computation per {account.whole} ({duration(compute[ranks[0]])}), "
        f"rank {ranks[-1]} the least ({duration(compute[ranks[-1]])})."
    )
    drawn_ranks = ranks if len(ranks) <= 2 * _ENDS else ranks[:_ENDS] + ranks[-_ENDS:]
    title = f"Mean {account.whole} of each rank, sorted by computation"
    if len(drawn_ranks) < len(ranks):
        title += f": first {_ENDS} and last {_ENDS} of {len(ranks)}"
    stacks = _stacked_ranks([row for row in rows if row["rank"] in set(drawn_ranks)], drawn_ranks)
    legend = tuple((name, CATEGORIES[name]) for name in STACK_ORDER if name in account.times)
    cards = [chart_card("GPU time by rank", text, title, stacks, legend)]
    if len(ranks) >= _MIN_HEAT_MAP_RANKS:
        text = "Each row is a category; stronger colors mark ranks with a larger share."
        title = "Share of each rank's time by category"
        cards.append(chart_card("All ranks", text, title, _rank_heat_map(rows)))
    return cards


def _stacked_ranks(rows: Sequence[Row], ranks: Sequence[int]) -> Chart:
    segments = []
    for row in rows:
        category, time, share = row["category"], duration(row["ns"]), percent(row["ns"], row["window_ns"])
        description = f"rank {row['rank']}: {CATEGORIES[category]} {time}, {share}"
        segments.append(Segment(str(row["rank"]), category, row["ns"], category, description))
    return stacked_bars(segments, [str(rank) for rank in ranks], STACK_ORDER)


def _rank_heat_map(rows: Sequence[Row]) -> Chart:
    """One column per rank, or per group of consecutive ranks; each row is scaled to its largest share."""
    ranks = sorted({row["rank"] for row in rows})
    group_size = -(-len(ranks) // _MAX_HEAT_MAP_COLUMNS)
    column_of = {rank: number // group_size for number, rank in enumerate(ranks)}
    first_rank = {column_of[rank]: rank for rank in reversed(ranks)}
    sums: dict[tuple[int, str], tuple[int, int]] = {}
    for row in rows:
        key = column_of[row["rank"]], row["category"]
        ns, window_ns = sums.get(key, (0, 0))
        sums[key] = ns + row["ns"], window_ns + row["window_ns"]
    largest: dict[str, float] = {}
    for (_, name), (ns, window_ns) in sums.items():
        largest[name] = max(largest.get(name, 0.0), ns / window_ns)
    categories = [name for name in STACK_ORDER if largest.get(name, 0) > _MIN_HEAT_MAP_SHARE]
    others = f" and the {group_size - 1} after it" if group_size > 1 else ""
    cells = []
    for (column, name), (ns, window_ns) in sums.items():
        if name in categories:
            text = f"rank {first_rank[column]}{others}: {CATEGORIES[name]} {percent(ns, window_ns)}"
            value = ns / window_ns / largest[name]
            cells.append(Cell(first_rank[column], SHORT_CATEGORIES[name], value, name, text))
    return heat_map(cells, [SHORT_CATEGORIES[name] for name in categories])


_MAX_STEPS = 40  # bars in a tile
# Tile: name, category, the section with its details.
_PARTS = (
    ("computation", "compute", "overview"),
    ("exposed transfer", "exposed_transfer", "communication"),
    # Whether it is waiting or transfer is unknown, as where ranks are missing.
    ("exposed communication", "exposed_unassigned", "communication"),
    ("waiting for ranks", "exposed_wait", "communication"),
    ("exposed copies", "exposed_memory", "overview"),
)


def run_tiles(data: ReportData) -> Iterator[Tile]:
    """The tiles of a run."""
    times = _step_times(data)
    if times is not None:
        yield _step_tile(data, times)
    account = breakdown(data)
    if account is not None:
        yield from _part_tiles(data, account)
        yield from _utilization_tile(data)
    else:
        yield from _host_tiles(data)
    peak = peak_memory(data)
    if peak is not None:
        above = "above its initial level, " if peak["is_net"] else ""
        note = f"{above}{device_label(peak)}"
        yield Tile("memory peak", format_short(peak["peak"], "bytes"), note, "memory")


def _step_tile(data: ReportData, times: Row) -> Tile:
    rows = data.rows(
        "SELECT step, avg(period_ns) AS ns FROM step_summary WHERE NOT partial GROUP BY step ORDER BY step"
    )
    note = f"mean of {plural(times['count'], _step_kind(times))}"
    if times["count"] > 1:
        note += f", slowest {duration(times['slowest_ns'])}"
    longest = max((row["ns"] for row in rows), default=0)
    steps = few([row["ns"] / longest for row in rows]) if longest else ()
    return Tile("step time", duration(_mean_step(data, times)), note, "overview", steps=steps)


def few(values: Sequence[float]) -> tuple[float, ...]:
    """The values of steps, if a tile has room for their bars."""
    return tuple(values) if 1 < len(values) <= _MAX_STEPS else ()


def _part_tiles(data: ReportData, account: Account) -> Iterator[Tile]:
    """The share of each part, and that in each step, as mean over ranks."""
    parts = [
        (name, color, [color], f"{account.mean(ns)} of the {account.whole}", section)
        for name, color, section in _PARTS
        if (ns := account.times.get(color, 0)) or name == "computation"
    ]
    if idle := account.idle:
        cause = next(iter(idle))
        note = f"most: {idle_cause(cause)}" if sum(idle.values()) >= 0.001 * account.total_ns else ""
        parts.append(("idle", cause, [*idle], note, "host"))
    for name, color, categories, note, section in parts:
        ns, total = sum(account.times.get(category, 0) for category in categories), account.total_ns
        steps = _by_step(data, account, categories) if account.whole == "step" else ()
        yield Tile(name, percent(ns, total), note, section, color, ns / total, steps)


def _utilization_tile(data: ReportData) -> Iterator[Tile]:
    """Estimated SM efficiency and occupancy over the GPU windows, if every kernel records them."""
    row = data.row(
        """
        SELECT sum(sm_efficiency * window_ns) / sum(window_ns) AS efficiency,
          sum(occupancy * kernel_ns) / sum(kernel_ns) FILTER (occupancy IS NOT NULL) AS occupancy,
          count(*) = count(sm_efficiency) AS is_known
        FROM gpu_utilization WHERE step IS NULL
        """,
        "gpu_utilization",
    )
    if row["efficiency"] is None or not row["is_known"]:
        return
    note = "estimated, over the GPU window"
    if row["occupancy"] is not None:
        note = f"estimated; occupancy {percent(row['occupancy'], 1)}"
    steps = data.rows(
        """
        SELECT step, avg(sm_efficiency) AS share FROM gpu_utilization
        WHERE step IS NOT NULL GROUP BY step HAVING count(*) = count(sm_efficiency) ORDER BY step
        """
    )
    efficiency, shares = row["efficiency"], few([by_step["share"] for by_step in steps])
    yield Tile("SM efficiency", percent(efficiency, 1), note, "kernels", "compute", efficiency, shares)


def _by_step(data: ReportData, account: Account, categories: Sequence[str]) -> tuple[float, ...]:
    names = ", ".join(f"'{name}'" for name in categories)
    rows = data.rows(
        f"""
        SELECT step, coalesce(sum(category_ns) FILTER (category IN ({names})), 0) / sum(category_ns) AS share
        FROM ({account.rows}) GROUP BY step ORDER BY step
        """
    )
    return few([row["share"] for row in rows])


def _host_tiles(data: ReportData) -> Iterator[Tile]:
    """What the training threads spend the most time in, as shares of their steps or recording."""
    rows = data.rows(
        """
        SELECT category, name, sum(self_ns)::BIGINT AS ns, sum(sum(self_ns)) OVER ()::BIGINT AS total_ns,
          (SELECT greatest(count(DISTINCT (rank, step)), 1) FROM host_account) AS steps,
          (SELECT bool_or(step IS NOT NULL) FROM host_account) AS of_step
        FROM host_account GROUP BY category, name ORDER BY ns DESC, category, name LIMIT 4
        """,
        "host_account",
    )
    for row in rows:
        kind = HOST_CATEGORIES[row["category"]][1]
        name = kind if row["name"] is None else label(row["name"])
        note = f"{duration(row['ns'] / row['steps'])} per step"
        if not row["of_step"]:
            note = f"{data.per_rank(row['ns'])} {data.on_rank}"
        if row["name"]:
            note += f", {kind}"
        yield Tile(name, percent(row["ns"], row["total_ns"]), note, "host", share=row["ns"] / row["total_ns"])


_MAX_LABELS = 4  # in the line below the title
_EPOCH_NS = 10**17  # earlier timestamps count from some start, not from 1970
_RECORDED_KINDS = {
    "gpu": "GPU activities",
    "launches": "launches",
    "shapes": "input shapes",
    "stacks": "Python stacks",
    "modules": "modules",
    "memory_events": "allocations",
    "collectives": "collectives",
}


def run_facts(data: ReportData, info: RunInfo) -> tuple[tuple[str, str], ...]:
    """Names and values for the top of the page."""
    run, ranks = info.run, info.ranks.rows()
    labels = ", ".join(f"{key}={value}" for key, value in run["labels"].items())
    recorded = _recorded_duration(ranks)
    if recorded is None:
        recorded = "no event has a timestamp"
    else:
        start_ns = min(row["start_ns"] for row in ranks if row["start_ns"] is not None)
        is_known = start_ns >= _EPOCH_NS
        recorded += f" from {timestamp(start_ns)[:19]} UTC" if is_known else "; start time unknown"
    selected, world_size = list(data.selected.ranks), run["world_size"]
    of_world = f" of {world_size}" if world_size else ""
    listed = f" ({rank_list(selected)})" if world_size and len(selected) < world_size else ""
    return (
        ("Run", f"{run['run_id']}, version {run['version']}"),
        ("Labels", labels or "none"),
        ("GPUs", ", ".join(run["device_names"]) or "not recorded"),
        ("Ranks", f"{len(selected)}{of_world}{listed}"),
        ("Framework", ", ".join(run["framework_versions"]) or "not recorded"),
        ("Recorded", recorded),
        ("Steps", _steps(ranks)),
        ("Events", f"{sum(row['events'] or 0 for row in ranks):,}"),
    )


def run_line(data: ReportData, info: RunInfo) -> str:
    """The run in one line: devices, steps, labels and date."""
    run, ranks = info.run, info.ranks.rows()
    count = f"{len(data.selected.ranks)} × " if len(data.selected.ranks) > 1 else ""
    devices = and_list(run["device_names"])
    selected, world_size = len(data.selected.ranks), run["world_size"]
    facts = [f"{count}{devices}" if devices else plural(selected, "rank")]
    facts.append(f"{selected} of {world_size} ranks" if world_size and selected < world_size else "")
    steps = _steps(ranks).removesuffix(" per rank")
    facts.append("" if steps == "none" else f"{steps} step{'' if steps == '1' else 's'}")
    facts += [f"{key}={value}" for key, value in list(run["labels"].items())[:_MAX_LABELS]]
    starts = [row["start_ns"] for row in ranks if row["start_ns"] is not None]
    if starts and min(starts) >= _EPOCH_NS:
        facts.append(timestamp(min(starts))[:10])
    return " · ".join(part for part in facts if part)


def _recorded_duration(ranks: Sequence[Row]) -> str | None:
    """The longest profiling window of a rank; None if no event has a timestamp."""
    windows = [
        row["end_ns"] - row["start_ns"] for row in ranks if None not in (row["start_ns"], row["end_ns"])
    ]
    return duration(max(windows)) if windows else None


def _steps(ranks: Sequence[Row]) -> str:
    counts = sorted({row["steps"] or 0 for row in ranks})
    return "none" if counts == [0] else " or ".join(map(str, counts)) + " per rank"


def limits_section(data: ReportData, info: RunInfo, *more: str) -> Section:
    """What the trace does not show, and `more`, at the end of the page."""
    ranks = info.ranks.rows()
    recorded = _recorded_duration(ranks)
    summary = "No event has a timestamp."
    if recorded is not None:
        summary = f"Only {recorded} were recorded; activity outside this window is unknown."
    statements = (
        *_missing_kinds(ranks),
        *_coverage(data),
        # The name of the run stays as it is.
        *(f"{text}." if text.startswith(data.run) else sentence(text) for text in notices([data.selected])),
        *_quality_issues(data),
        *more,
        *(sentence(f"{reason}: {and_list(names)}") for reason, names in data.outdated().items()),
    )
    return Section("limits", "Not visible in this trace", summary, statements=statements)


def _missing_kinds(ranks: Sequence[Row]) -> Iterator[str]:
    for flag, kind in _RECORDED_KINDS.items():
        without = [row["rank"] for row in ranks if not row[flag]]
        if len(without) == len(ranks):
            yield f"No {kind} were recorded; results that need them are missing."
        elif without:
            yield f"No {kind} were recorded on ranks {rank_list(without)}."


def _coverage(data: ReportData) -> Iterator[str]:
    if not data.has_rows("coverage"):
        return
    row = data.row(
        "SELECT sum(gpu_ns)::BIGINT AS gpu, sum(launch_known_ns)::BIGINT AS known,"
        " sum(before_window_ns)::BIGINT AS before, sum(with_op_ns)::BIGINT AS op,"
        " sum(graph_ns - graph_attributed_ns)::BIGINT AS graph FROM coverage"
    )
    if row["known"] < row["gpu"]:
        unknown, before = (percent(ns, row["gpu"]) for ns in (row["gpu"] - row["known"], row["before"]))
        yield f"The launch is unknown for {unknown} of GPU time ({before} started before the recording)."
    if row["op"] < row["known"]:
        unknown = percent(row["known"] - row["op"], row["gpu"])
        graph = f", of which {percent(row['graph'], row['gpu'])} in graph launches" if row["graph"] else ""
        yield f"The operator is unknown for {unknown} of GPU time{graph}."


def _quality_issues(data: ReportData) -> Iterator[str]:
    rows = data.rows(
        "SELECT severity, rule, sum(rows)::BIGINT AS rows FROM quality"
        " WHERE severity <> 'info' AND rule <> 'ranks_missing' GROUP BY ALL ORDER BY severity, rule",
        "quality",
    )
    if rows:
        issues = and_list([f"{plural(row['rows'], 'row')} of {row['rule']}" for row in rows])
        yield f"Data quality: {issues} (see the table of data-quality issues)."


def quality_section(data: ReportData) -> Section:
    """Coverage and data-quality issues."""
    printed = tables(
        data,
        Listing("coverage", "GPU time with a known launch and operator"),
        Listing("quality", "Data-quality issues", "severity, rule, rank"),
    )
    rules = data.row("SELECT count(DISTINCT rule) AS count FROM quality")["count"]
    summary = f"{plural(rules, 'data-quality issue')}." if rules else "No data-quality issues."
    return Section("data", "Data quality", summary, (), printed)
