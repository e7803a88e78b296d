"""Kernels, modules and work: what takes the most time, who launched it, and how close it is to the limits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from tracewarehouse.present.plot.charts import (
    Bar,
    Distribution,
    Dot,
    Roof,
    distribution_chart,
    histogram,
    roofline_chart,
)
from tracewarehouse.present.plot.parts import color_key
from tracewarehouse.present.render.text import flop, flop_rate, plural
from tracewarehouse.present.report.data import ReportData, Row, kernels_by_step, mean_step_ns
from tracewarehouse.present.report.document import (
    MAX_ROWS,
    Card,
    Command,
    Figure,
    Listing,
    Section,
    Table,
    TreeNode,
    bar_card,
    chart_card,
    contract_of,
    distinct_labels,
    duration,
    label,
    percent,
    tables,
)
from tracewarehouse.result import Field

_MAX_BARS = 10
_BY_NAME = """
SELECT kind, name, sum(count)::BIGINT AS count, sum(sum_ns)::BIGINT AS ns, min(min_ns) AS low,
  median(p50_ns) AS median, max(p95_ns) AS p95, max(max_ns) AS high
FROM kernel_summary
GROUP BY kind, name
ORDER BY ns DESC, name
"""
_COMPILED = """
SELECT name, sum(gpu_sum_ns)::BIGINT AS ns, coalesce(any_value(source_ops), '') AS of
FROM compiled_kernels
GROUP BY name
ORDER BY ns DESC, name
"""


_TABLES = (
    Listing("kernel_summary", "Kernels, memcpy and memset by time", "sum_ns DESC, name", is_combined=True),
    Listing("op_summary", "Operators by the GPU time that they launched directly", is_combined=True),
    Listing("launch_summary", "Launches by runtime function", is_combined=True),
    Listing("source_summary", "GPU time by Python function", is_combined=True),
    Listing("gpu_utilization", "GPU utilization by step", "rank, step NULLS FIRST"),
    Listing("gpu_metrics", "Sampled GPU metrics by step", "rank, device, step NULLS FIRST"),
    Listing("compiled_kernels", "Compiled kernels", is_combined=True),
    Listing("kernel_limits", "Limits of kernels, from Nsight Compute"),
)


def kernels_section(data: ReportData) -> Section:
    """The section."""
    if not data.has_rows("kernel_summary"):
        reason = data.missing_reason("kernel_summary") or "no GPU activities recorded"
        return Section("kernels", "Kernels", f"No kernel data: {reason}.")
    printed = (*tables(data, _TABLES[0]), *_places_table(data), *tables(data, *_TABLES[1:]))
    cards = (*_kernel_cards(data), *_compiled_cards(data), _operators_card(data), *_launch_cards(data))
    # The command that profiles the kernel with the most time, which the summary names.
    profiled = data.rows(
        f"""
        SELECT kernel, command
        FROM ncu_commands
        ORDER BY name = (SELECT name FROM ({_BY_NAME}) LIMIT 1) DESC, gpu_sum_ns DESC, rank, kernel
        LIMIT 1
        """,
        "kernel_summary",
        "ncu_commands",
    )
    commands = tuple(
        Command(f"{row['command']} PROGRAM", f"Nsight Compute shows what limits {label(row['kernel'])}")
        for row in profiled
    )
    return Section("kernels", "Kernels", _kernels_summary(data), cards, printed, commands=commands)


def _places_table(data: ReportData) -> Iterator[Table]:
    """What launches the kernels with the most time per step; none without complete steps."""
    by_step = kernels_by_step(data, "name", "op", "module_path")
    if by_step is None:
        return
    rows = sorted(by_step.mean_ns.items(), key=lambda row: (-row[1], str(row[0])))
    docs = {column.name: column.doc for column in contract_of(data.result("step_kernels")).columns}
    names = ("name", "op", "module_path")
    yield Table(
        name="step_kernels",
        caption="Kernels by operator and module",
        fields=(*(Field(name, "VARCHAR") for name in names), Field("per_step_ns", "DOUBLE", "ns")),
        docs=(*(docs[name] for name in names), "Time per step: mean of ranks and complete steps."),
        rows=[[*key, ns] for key, ns in rows[:MAX_ROWS]],
        total=len(rows),
        command=f"tw show step_kernels --run {shlex.quote(data.run)}",
    )


def _kernels_summary(data: ReportData) -> str:
    rows = data.rows(_BY_NAME)
    count, ns = (sum(row[column] for row in rows) for column in ("count", "ns"))
    by_step = kernels_by_step(data, "name")
    time = f"{data.per_rank(ns)} total {data.on_rank}"
    first, share = rows[0]["name"], f"{percent(rows[0]['ns'], ns)} of it"
    if by_step is not None:
        time = f"{duration(sum(by_step.mean_ns.values()))} of GPU time per step"
        share = f"{percent(by_step.mean_ns.get((first,), 0.0), by_step.period_ns)} of the step"
    return (
        f"{plural(count, 'GPU activity')} with {plural(len(rows), 'distinct name')}, "
        f"{time}; {label(first)} takes the most, {share}."
    )


def _compiled_cards(data: ReportData) -> list[Card]:
    """What torch.compile or Triton generated: its share of GPU time, and the kernel with the most time."""
    rows = data.rows(_COMPILED, "compiled_kernels")
    if not rows:
        return []
    top_rows = rows[:_MAX_BARS]
    bars, color = [], color_key("computation")
    for name, row in zip(distinct_labels([row["name"] for row in top_rows]), top_rows, strict=True):
        time = data.per_rank(row["ns"])
        description = f"{row['name']}: {row['of'] or 'no operators in its name'}, {time} per rank"
        bars.append(Bar(name, row["ns"] / data.ranks, color, time, description))
    ns = sum(row["ns"] for row in rows)
    total = data.row("SELECT sum(sum_ns)::BIGINT AS ns FROM kernel_summary")["ns"]
    fused = f", fused from {rows[0]['of']}" if rows[0]["of"] else ""
    verb = "takes" if len(rows) == 1 else "take"
    text = (
        f"{plural(len(rows), 'kernel')} generated by torch.compile or Triton {verb} {percent(ns, total)} of"
        f" GPU time in the recording; {label(rows[0]['name'])} takes the most{fused}."
    )
    return [bar_card("Compiled kernels", text, "Time per rank in the recording", bars)]


def _kernel_cards(data: ReportData) -> list[Card]:
    rows = data.rows(_BY_NAME)
    total = sum(row["ns"] for row in rows)
    shown = rows[:_MAX_BARS]
    labels = distinct_labels([row["name"] for row in shown])
    title, whole = "Time per rank in the recording, colored by kind", f"{data.on_rank}, of GPU time"
    per_step, times = _mean_times(data, shown, total, "kind", "name")
    if per_step:
        title = "Time per step, mean of ranks and complete steps, colored by kind"
        whole = "per step, of the step"
    bars = []
    for name, row, (ns, share, text) in zip(labels, shown, times, strict=True):
        counted = f"{row['name']}: {row['kind']}, {row['count']:,} times in the recording"
        description = f"{counted}, {duration(ns)} ({share}) {whole}"
        bars.append(Bar(name, ns, color_key(row["kind"]), text, description))
    share = percent(sum(row["ns"] for row in shown), total)
    text = f"The top {len(shown)} of {plural(len(rows), 'name')} take {share} of GPU time in the recording."
    kinds = dict.fromkeys(row["kind"] for row in shown)
    legend = tuple((color_key(kind), kind) for kind in kinds if len(kinds) > 1)
    return [bar_card("Top kernels", text, title, bars, legend=legend), _durations_card(shown)]


def _mean_times(
    data: ReportData, rows: Sequence[Row], total: int, *keys: str
) -> tuple[bool, list[tuple[float, str, str]]]:
    """Whether times are those of the mean step, else of ranks; and each row's time, its share, and a text."""
    by_step = kernels_by_step(data, *keys)
    if by_step is None:
        return False, [
            (row["ns"] / data.ranks, percent(row["ns"], total), data.per_rank(row["ns"])) for row in rows
        ]
    times = []
    for row in rows:
        ns = by_step.mean_ns.get(tuple(row[key] for key in keys), 0.0)
        share = percent(ns, by_step.period_ns)
        times.append((ns, share, f"{duration(ns)}, {share}"))
    return True, times


def _durations_card(rows: Sequence[Row]) -> Card:
    labels = distinct_labels([row["name"] for row in rows])
    distributions = []
    for name, row in zip(labels, rows, strict=True):
        ends = row["low"], row["median"], row["p95"], row["high"]
        low, median, p95, high = map(duration, ends)
        description = f"{row['name']}: {low} to {high}, median {median}, 95th percentile {p95}"
        distributions.append(Distribution(name, *ends, color_key(row["kind"]), median, description))
    most = max(rows, key=lambda row: row["high"] / max(row["median"], 1))
    median, maximum = duration(most["median"]), duration(most["high"])
    text = f"{label(most['name'])} varies most: median {median}, maximum {maximum}."
    title = "Range; thick bar: median to 95th percentile"
    return chart_card("Duration per call", text, title, distribution_chart(distributions))


def _operators_card(data: ReportData) -> Card:
    rows = data.rows(
        """
        SELECT name AS op, sum(kernel_self_sum_ns)::BIGINT AS ns, sum(kernel_self_count)::BIGINT AS count
        FROM op_summary GROUP BY name HAVING ns > 0 ORDER BY ns DESC, name
        """,
        "op_summary",
    )
    if not rows:
        return Card("By operator", "No GPU work is attributed to an operator.")
    total, no_name = sum(row["ns"] for row in rows), "no operator or unknown launch"
    shown = rows[:_MAX_BARS]
    per_step, times = _mean_times(data, shown, total, "op")
    bars = []
    for row, (ns, _, text) in zip(shown, times, strict=True):
        count, share = plural(row["count"], "GPU activity"), percent(row["ns"], total)
        description = f"{row['op'] or no_name}: {count} in the recording, {share} of GPU time"
        bars.append(Bar(label(row["op"] or f"({no_name})"), ns, "plain", text, description))
    at = next((place for place, row in enumerate(shown) if row["op"]), 0)
    text = f"{label(shown[at]['op'])} launched the most: {times[at][2]}{' of the step' if per_step else ''}."
    title = f"GPU time per {'step' if per_step else 'rank in the recording'}, by operator"
    return bar_card("By operator", text, title, bars)


def _launch_cards(data: ReportData) -> list[Card]:
    row = data.row(
        """
        SELECT sum(launches)::BIGINT AS launches, sum(short_kernels)::BIGINT AS short,
          sum(runtime_outliers)::BIGINT AS slow, sum(delay_outliers)::BIGINT AS late
        FROM launch_summary
        """,
        "launch_summary",
    )
    if not row["launches"]:
        return [
            Card("Launches", "No launches were recorded, so launch delays and short kernels are unknown.")
        ]
    short, late, slow = (percent(row[name], row["launches"]) for name in ("short", "late", "slow"))
    text = (
        f"Of {row['launches']:,} launches, {short} ran shorter than their launch call, "
        f"{late} started more than 100 µs after the call, {slow} had a call longer than 50 µs."
    )
    delays = _histogram(
        data, "call_to_start_ns", "delay", "From the start of the call to the start on the GPU"
    )
    durations = _histogram(data, "kernel_ns", "duration", "Distribution of kernel durations")
    counts = data.row(
        "SELECT count(*) AS count, count(*) FILTER (kernel_ns < 10000) AS short FROM launch_stats"
    )
    short_kernels = f"{percent(counts['short'], counts['count'])} of GPU activities are shorter than 10 µs."
    return [Card("Launches", text, delays), Card("Short kernels", short_kernels, durations)]


def _histogram(data: ReportData, column: str, quantity: str, title: str) -> tuple[Figure, ...]:
    values = f"SELECT {column} AS value FROM launch_stats WHERE {column} > 0"
    bins = data.bins(values, "ns", "launch_stats")
    return (Figure(title, histogram(bins, quantity, "ns")),) if bins else ()


# Branches with less than this share of the time are one line each, and so are those after the largest ones.
_MIN_SHARE = 0.002
_MAX_CHILDREN = 30
_OPEN_DEPTH = 2
_MIN_EXCESS = 0.01  # of the step: a module that takes less more than its siblings is not marked
_PASSES = ("forward_ns", "backward_ns", "recompute_ns")
_TOTALS = """
SELECT
  module_path,
  any_value(depth) AS depth,
  sum(calls)::BIGINT AS calls,
  sum(coalesce(kernel_sum_ns, host_ns))::BIGINT AS total_ns,
  sum(coalesce(kernel_self_sum_ns, host_self_ns))::BIGINT AS self_ns,
  sum(forward_ns)::BIGINT AS forward_ns,
  sum(backward_ns)::BIGINT AS backward_ns,
  sum(recompute_ns)::BIGINT AS recompute_ns,
  count(kernel_sum_ns) > 0 AS on_gpu
FROM module_summary
GROUP BY module_path
ORDER BY total_ns DESC, module_path
"""
_OUTLIERS = """
SELECT
  module_path,
  any_value(name) AS name,
  max(instances) AS instances,
  sum(kernel_sum_ns) / nullif(sum(median_ns), 0) AS factor,
  (sum(kernel_sum_ns) - sum(median_ns)) AS excess_ns,
  max(abs(robust_z)) AS z
FROM module_siblings
WHERE is_outlier
GROUP BY module_path
ORDER BY len(string_split(module_path, ' > ')), z DESC, module_path
"""


def modules_sections(data: ReportData) -> list[Section]:
    """The section; none if the traces have no modules."""
    rows = data.rows(_TOTALS, "module_summary")
    if all(row["depth"] is None for row in rows):
        return []
    per_step = _per_step(data, rows)
    recorded_ns = sum(row["self_ns"] for row in rows)
    tree = _Tree(data, rows if per_step is None else per_step, per_step is not None)
    outliers = [
        row
        for row in data.rows(_OUTLIERS, "module_siblings")
        if row["excess_ns"] > _MIN_EXCESS * tree.whole_ns * recorded_ns / tree.total_ns
    ]
    tree.outliers = {row["module_path"]: _outlier(row) for row in outliers}
    order = "kernel_self_sum_ns DESC, host_self_ns DESC, module_path"
    listed = [Listing("module_summary", "Modules", order, is_combined=True)]
    if outliers:
        order = "is_outlier DESC, abs(robust_z) DESC, module_path"
        listed.append(Listing("module_siblings", "Modules compared with their siblings", order))
    summary, printed = _modules_summary(tree, outliers), tables(data, *listed)
    return [Section("modules", "Modules", summary, tables=printed, trees=tree.nodes("", 1))]


def _per_step(data: ReportData, rows: Sequence[Row]) -> list[Row] | None:
    """The rows with the GPU time of the mean complete step; None without such steps, or without a GPU."""
    by_step = kernels_by_step(data, "module_path", "pass")
    if by_step is None or not any(row["on_gpu"] for row in rows):
        return None
    times = {row["module_path"]: dict.fromkeys(("total_ns", "self_ns", *_PASSES), 0.0) for row in rows}
    for (path, phase), ns in by_step.mean_ns.items():
        path_names = (path or "").split(" > ")
        for above in (" > ".join(path_names[:end]) for end in range(1, len(path_names) + 1)):
            if above in times:
                times[above]["total_ns"] += ns
                if f"{phase}_ns" in _PASSES:
                    times[above][f"{phase}_ns"] += ns
        if path in times:
            times[path]["self_ns"] += ns
    found = [{**row, **times[row["module_path"]]} for row in rows]
    return sorted(found, key=lambda row: (-row["total_ns"], row["module_path"]))


def _outlier(row: Row) -> str:
    return f"{row['factor']:.2f} × the median of {row['instances']} siblings"


def _modules_summary(tree: _Tree, outliers: Sequence[Row]) -> str:
    modules = [row for row in tree.rows if row["depth"] is not None]
    inside = sum(row["total_ns"] for row in modules if row["depth"] == 1)
    what = "GPU time" if tree.on_gpu else "host time"
    time = f"{tree.time(inside)} of {what}"
    share = (
        f"{percent(inside, tree.whole_ns)} of the step"
        if tree.is_per_step
        else percent(inside, tree.whole_ns)
    )
    phrases = [
        f"{plural(len(modules), 'module')} with {time}{' per step' if tree.is_per_step else ''} ({share})"
    ]
    if outliers:
        first = outliers[0]
        phrases.append(f"{first['name']} differs most from its siblings: {_outlier(first)}")
    return "; ".join(phrases) + "."


class _Tree:
    """The rows of all modules, and their nodes."""

    def __init__(self, data: ReportData, rows: Sequence[Row], is_per_step: bool) -> None:
        self.rows = rows
        self.time = duration if is_per_step else data.per_rank
        self.is_per_step = is_per_step
        self.outliers: Mapping[str, str] = {}
        self.on_gpu = any(row["on_gpu"] for row in rows)
        self.total_ns = sum(row["self_ns"] for row in rows)
        # What shares refer to: the step, or all time of the rows.
        self.whole_ns = (mean_step_ns(data) if is_per_step else None) or self.total_ns
        self._below: dict[str, list[Row]] = {}
        for row in rows:
            above = row["module_path"].rpartition(" > ")[0] if row["depth"] is not None else ""
            self._below.setdefault(above, []).append(row)

    def nodes(self, path: str, depth: int) -> tuple[TreeNode, ...]:
        """The modules in one; of the path "", the outermost ones, and the rows without a module."""
        rows = self._below.get(path, [])
        limit = _MIN_SHARE * self.total_ns
        shown = [
            row
            for place, row in enumerate(rows)
            if row["module_path"] in self.outliers or place < _MAX_CHILDREN and row["total_ns"] >= limit
        ]
        nodes = [self._node(row, depth) for row in shown]
        rest = [row for row in rows if row not in shown]
        if rest:
            ns = sum(row["total_ns"] for row in rest)
            text = self.time(ns)
            nodes.append(TreeNode(f"{plural(len(rest), 'other')}", text, self._share(ns), 0.0))
        return tuple(nodes)

    def _node(self, row: Row, depth: int) -> TreeNode:
        path = row["module_path"]
        return TreeNode(
            name=path.rpartition(" > ")[2],
            text=self._text(row),
            total=self._share(row["total_ns"]),
            own=self._share(row["self_ns"]),
            note=self.outliers.get(path, ""),
            children=self.nodes(path, depth + 1) if row["depth"] is not None else (),
            is_open=depth < _OPEN_DEPTH or any(outlier.startswith(f"{path} > ") for outlier in self.outliers),
        )

    def _text(self, row: Row) -> str:
        time = self.time
        phrases = [f"{time(row['total_ns'])} ({percent(row['total_ns'], self.whole_ns)})"]
        if row["self_ns"] and row["self_ns"] != row["total_ns"]:
            phrases.append(f"self {time(row['self_ns'])}")
        if row["depth"] is not None and self.on_gpu:
            passes = [f"{name.removesuffix('_ns')} {time(row[name])}" for name in _PASSES if row[name]]
            phrases += passes if len(passes) > 1 else []
        return ", ".join(phrases)

    def _share(self, ns: int) -> float:
        return ns / self.whole_ns if self.whole_ns else 0.0


_MAX_DOTS = 60
_KERNELS = """
SELECT kernel, sum(count)::BIGINT AS count, sum(hardware_flop)::HUGEINT::DOUBLE AS flop,
  sum(bytes)::HUGEINT::DOUBLE AS bytes, sum(gpu_union_ns)::BIGINT AS ns,
  max(roofline) AS roofline, any_value(bound_by) AS bound_by, min(limit_reason) AS limit_reason,
  max(limit_flop_per_ns) AS limit_flop_per_ns, max(limit_bytes_per_ns) AS limit_bytes_per_ns
FROM roofline
GROUP BY kernel
ORDER BY ns DESC, kernel
"""
_COLORS = {"compute": "compute", "memory": "exposed_memory", "neither": "idle_host", "over": "longer"}


def work_section(data: ReportData) -> Section:
    """The section."""
    if not data.has_rows("op_work_summary"):
        reason = data.missing_reason("op_work_summary") or "no operator with a rule ran on the GPU"
        return Section("work", "Work", f"No FLOP or bytes of operators are known: {reason}.")
    printed = tables(
        data,
        Listing("mfu", "FLOP utilization by step", "rank, step NULLS FIRST"),
        Listing("op_work_summary", "Work by operator, shapes and pass", is_combined=True),
        Listing("roofline", "Work by main kernel", is_combined=True),
    )
    return Section("work", "Work", _work_summary(data), (*_roofline_cards(data), *_over_cards(data)), printed)


def _work_summary(data: ReportData) -> str:
    """FLOP, and the share of computation time that they are known for."""
    rows = data.rows("SELECT * FROM mfu_run", "mfu_run")
    if not rows or rows[0]["flop_coverage"] is None:
        return "No computation was recorded."
    (row,) = rows
    covered = f"FLOP are known for {percent(row['flop_coverage'], 1)} of computation time"
    if row["model_flop"] is None:
        return f"{covered}: no input shapes recorded, or no operator with a rule."
    steps, whole = row["steps"] or 1, "step" if row["steps"] else "GPU window"
    several = (f" on {plural(row['ranks'], 'rank')}", " of the slowest one") if row["ranks"] > 1 else ("", "")
    period = f"in the {duration(row['period_ns'] / steps)} {whole}"
    done = f"{flop(round(row['model_flop'] / steps))}{several[0]} {period}{several[1]}"
    if row["mfu"] is None:
        return f"{covered}: {done}. No FLOP utilization: {row['reason']}."
    peak = f"{flop_rate(row['limit_flop_per_ns'])} of {row['peak_dtype']} arithmetic"
    sure = "" if row["dtype_known"] else " The type is not certain, so the higher peak is used."
    hardware = "" if row["hfu"] == row["mfu"] else f" (with recomputation {percent(row['hfu'], 1)}, HFU)"
    return (
        f"{covered}: {done} are {percent(row['mfu'], 1)} of the peak, {peak} (MFU){hardware}. "
        f"The peak is that of the vendor's data sheet, without sparsity.{sure}"
    )


def _roofline_cards(data: ReportData) -> list[Card]:
    rows = [row for row in data.rows(_KERNELS, "roofline") if row["flop"] and row["bytes"] and row["ns"]]
    if not rows:
        return [Card("Roofline", "No kernel has known FLOP and bytes.")]
    drawn = rows[:_MAX_DOTS]
    total = sum(row["ns"] for row in drawn)
    dots = []
    for row in drawn:
        color, rate = _COLORS.get(row["bound_by"] or "", "plain"), row["flop"] / row["ns"]
        dots.append(Dot(row["flop"] / row["bytes"], rate, row["ns"] / total, color, _description(row)))
    first = drawn[0]
    reached = (
        (first["limit_reason"] or "the peak of the device is not known")
        if first["roofline"] is None
        else f"it reaches {percent(first['roofline'], 1)} of the nearer limit"
    )
    text = (
        f"{label(first['kernel'])} takes most time, at {flop_rate(first['flop'] / first['ns'])}: "
        f"{reached}. Kernels without FLOP are not drawn."
    )
    title = "Main kernels: rate over FLOP per byte; the area is the time, the lines are the limits"
    return [chart_card("Roofline", text, title, roofline_chart(dots, _roofs(drawn)))]


def _roofs(rows: list[Row]) -> list[Roof]:
    """The distinct limits of the kernels, highest first."""
    limits = {
        (row["limit_flop_per_ns"], row["limit_bytes_per_ns"])
        for row in rows
        if row["limit_flop_per_ns"] and row["limit_bytes_per_ns"]
    }
    return [
        Roof(f"{flop_rate(rate)}, {bandwidth:,.0f} GB/s", rate, bandwidth)
        for rate, bandwidth in sorted(limits, reverse=True)
    ]


def _description(row: Row) -> str:
    limit = "" if row["roofline"] is None else f", {percent(row['roofline'], 1)} of the nearer limit"
    return (
        f"{row['kernel']}: {plural(row['count'], 'operator')}, {flop_rate(row['flop'] / row['ns'])}, "
        f"{row['flop'] / row['bytes']:.3g} FLOP per byte, {duration(row['ns'])} of all ranks"
        f" in the recording{limit}"
    )


def _over_cards(data: ReportData) -> list[Card]:
    """Operators that appear faster than the device can be, by reason."""
    rows = data.rows(
        """
        SELECT over_reason, count(*) AS names, max(best_roofline) AS best,
          arg_max(name, (best_roofline, name)) AS name
        FROM op_work_summary
        WHERE over_reason IS NOT NULL
        GROUP BY over_reason
        ORDER BY names DESC, over_reason
        """,
        "op_work_summary",
    )
    if not rows:
        return []
    reasons = "; ".join(
        f"{plural(row['names'], 'operator')} ({row['over_reason']}), "
        f"{row['name']} most, {row['best']:.2f} times"
        for row in rows
    )
    return [Card("Above the peak", f"Some operators appear faster than the device can be: {reasons}.")]
