"""Work: FLOP and bytes of operators, and how close kernels come to the limits of the device."""

from __future__ import annotations

from tracewarehouse.present.plot import PAGE
from tracewarehouse.present.plot.roofline import Dot, Roof, roofline_chart
from tracewarehouse.present.render.text import flop, flop_rate, plural
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import Card, Figure, Section
from tracewarehouse.present.report.tables import combined_ranks, first_rows
from tracewarehouse.present.report.text import duration, label, percent

_MAX_DOTS = 60
_KERNELS = """
SELECT kernel, sum(count)::BIGINT AS count, sum(hardware_flop)::HUGEINT::DOUBLE AS flop,
  sum(bytes)::HUGEINT::DOUBLE AS bytes, sum(gpu_union_ns)::BIGINT AS ns,
  max(roofline) AS roofline, any_value(bound_by) AS bound_by,
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
    tables = (
        first_rows(data, "mfu", "FLOP utilization by step", order="rank, step NULLS FIRST"),
        combined_ranks(
            data, "op_work_summary", "Work by operator, shapes and pass", "gpu_union_ns DESC, name"
        ),
        combined_ranks(data, "roofline", "Work by main kernel", "gpu_union_ns DESC, kernel"),
    )
    return Section("work", "Work", _summary(data), (*_roofline_cards(data), *_over_cards(data)), tables)


def _summary(data: ReportData) -> str:
    """FLOP, and the share of computation time that they are known for."""
    rows = data.rows("SELECT * FROM mfu_run", "mfu_run")
    if not rows or rows[0]["flop_coverage"] is None:
        return "No computation was recorded."
    (row,) = rows
    covered = f"FLOP are known for {percent(row['flop_coverage'], 1)} of computation time"
    if row["model_flop"] is None:
        return f"{covered}: no input shapes recorded, or no operator with a rule."
    done = f"{flop(row['model_flop'])} in {duration(row['period_ns'])}"
    where = f"on {plural(row['ranks'], 'rank')}" if row["ranks"] > 1 else "on one rank"
    if row["mfu"] is None:
        return f"{covered}: {done} {where}. No FLOP utilization: {row['reason']}."
    peak = f"{flop_rate(row['limit_flop_per_ns'])} of {row['peak_dtype']} arithmetic"
    sure = "" if row["dtype_known"] else " The type is not certain, so the higher peak is used."
    hardware = "" if row["hfu"] == row["mfu"] else f" (with recomputation {percent(row['hfu'], 1)}, HFU)"
    return (
        f"{covered}: {done} {where} are {percent(row['mfu'], 1)} of the peak, {peak} (MFU){hardware}. "
        f"The peak is that of the vendor's data sheet, without sparsity.{sure}"
    )


def _roofline_cards(data: ReportData) -> list[Card]:
    rows = [row for row in data.rows(_KERNELS, "roofline") if row["flop"] and row["bytes"] and row["ns"]]
    if not rows:
        return [Card("Roofline", "No kernel has known FLOP and bytes.")]
    shown = rows[:_MAX_DOTS]
    total = sum(row["ns"] for row in shown)
    dots = [
        Dot(
            row["flop"] / row["bytes"],
            row["flop"] / row["ns"],
            row["ns"] / total,
            _COLORS.get(row["bound_by"] or "", "plain"),
            _description(row),
        )
        for row in shown
    ]
    first = shown[0]
    reached = (
        "the peak of the device is not known"
        if first["roofline"] is None
        else f"it reaches {percent(first['roofline'], 1)} of the nearer limit"
    )
    text = (
        f"{label(first['kernel'])} takes most time, {flop(first['flop'])} in {duration(first['ns'])}: "
        f"{reached}. Kernels without FLOP are not drawn."
    )
    figure = Figure(
        "Main kernels: rate over FLOP per byte; the area is the time, the lines are the limits",
        roofline_chart(dots, _roofs(shown), PAGE),
    )
    return [Card("Roofline", text, (figure,))]


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
        f"{row['flop'] / row['bytes']:.3g} FLOP per byte, {duration(row['ns'])}{limit}"
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
