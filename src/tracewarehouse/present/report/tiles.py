"""The tiles of a run: step time, the parts of a step, memory; without GPU activities, the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracewarehouse.display_names import idle_cause
from tracewarehouse.present.plot.theme import format_short
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.account import Account, breakdown
from tracewarehouse.present.report.data import ReportData
from tracewarehouse.present.report.document import Tile
from tracewarehouse.present.report.flame import HOST_CATEGORIES
from tracewarehouse.present.report.memory import device_label, peak_memory
from tracewarehouse.present.report.overview import step_kind, step_times
from tracewarehouse.present.report.text import duration, label, percent

_MAX_STEPS = 40  # bars in a tile
# Tile: name, category of its color, the categories that it sums.
_PARTS = (
    ("computation", "compute", ("compute",)),
    ("exposed transfer", "exposed_transfer", ("exposed_transfer",)),
    # Whether it is waiting or transfer is unknown, as where ranks are missing.
    ("exposed communication", "exposed_unassigned", ("exposed_unassigned",)),
    ("waiting for ranks", "exposed_wait", ("exposed_wait",)),
)


def run_tiles(data: ReportData) -> Iterator[Tile]:
    """The tiles of a run."""
    times = step_times(data)
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


def _step_tile(data: ReportData, times: dict[str, object]) -> Tile:
    rows = data.rows(
        "SELECT step, avg(period_ns) AS ns FROM step_summary WHERE NOT partial GROUP BY step ORDER BY step"
    )
    median, slowest = duration(_number(times["median_ns"])), duration(_number(times["slowest_ns"]))
    count = times["count"]
    assert isinstance(count, int)
    note = f"median of {plural(count, step_kind(times))}"
    if count > 1:
        note += f", slowest {slowest}"
    return Tile("step time", median, note, "overview", steps=_scaled([row["ns"] for row in rows]))


def _number(value: object) -> float | None:
    return value if isinstance(value, float | int) else None


def _part_tiles(data: ReportData, account: Account) -> Iterator[Tile]:
    total = account.total_ns
    for name, color, categories in _PARTS:
        ns = sum(account.times.get(each, 0) for each in categories)
        if ns or name == "computation":
            yield _part_tile(
                data, account, name, color, categories, f"{account.mean(ns)} of the {account.whole}"
            )
    idle = account.idle
    if idle:
        cause = next(iter(idle))
        note = f"most: {idle_cause(cause)}" if sum(idle.values()) >= 0.001 * total else ""
        yield _part_tile(data, account, "idle", cause, tuple(idle), note)


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
    yield Tile(
        "SM efficiency",
        percent(row["efficiency"], 1),
        note,
        "kernels",
        "compute",
        row["efficiency"],
        _efficiency_by_step(data),
    )


def _efficiency_by_step(data: ReportData) -> tuple[float, ...]:
    rows = data.rows(
        """
        SELECT step, avg(sm_efficiency) AS share FROM gpu_utilization
        WHERE step IS NOT NULL GROUP BY step HAVING count(*) = count(sm_efficiency) ORDER BY step
        """
    )
    return tuple(row["share"] for row in rows) if 1 < len(rows) <= _MAX_STEPS else ()


def _part_tile(
    data: ReportData, account: Account, name: str, color: str, categories: Sequence[str], note: str
) -> Tile:
    total = account.total_ns
    ns = sum(account.times.get(each, 0) for each in categories)
    section = "communication" if color.startswith("exposed_") else "overview"
    section = "host" if name == "idle" else section
    return Tile(
        name, percent(ns, total), note, section, color, ns / total, _by_step(data, account, categories)
    )


def _by_step(data: ReportData, account: Account, categories: Sequence[str]) -> tuple[float, ...]:
    """The share of these categories in each step, mean over ranks."""
    if account.whole != "step":
        return ()
    names = ", ".join(f"'{name}'" for name in categories)
    rows = data.rows(
        f"""
        SELECT step, coalesce(sum(category_ns) FILTER (category IN ({names})), 0) / sum(category_ns) AS share
        FROM ({account.rows}) GROUP BY step ORDER BY step
        """
    )
    return tuple(row["share"] for row in rows) if 1 < len(rows) <= _MAX_STEPS else ()


def _scaled(values: Sequence[float]) -> tuple[float, ...]:
    """The values as shares of the largest."""
    top = max(values, default=0)
    return tuple(value / top for value in values) if top and 1 < len(values) <= _MAX_STEPS else ()


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
