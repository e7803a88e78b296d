"""Nsight Compute in the section of kernels: limits of profiled kernels, and how to profile the first one."""

from __future__ import annotations

from tracewarehouse.present.report.data import ReportData
from tracewarehouse.present.report.document import Table
from tracewarehouse.present.report.tables import first_rows
from tracewarehouse.present.report.text import label


def limits_tables(data: ReportData) -> tuple[Table, ...]:
    """What limits the kernels that Nsight Compute profiled; empty without its metrics."""
    if not data.has_rows("kernel_limits"):
        return ()
    return (first_rows(data, "kernel_limits", "Limits of kernels, from Nsight Compute"),)


def profile_statement(data: ReportData) -> tuple[str, ...]:
    """The command that profiles the kernel with the most time; empty without CUDA kernels."""
    if not data.has_rows("ncu_commands"):
        return ()
    worst = data.row(
        "SELECT kernel, command FROM ncu_commands ORDER BY gpu_sum_ns DESC, rank, kernel LIMIT 1"
    )
    return (f"Nsight Compute shows what limits {label(worst['kernel'])}: {worst['command']} PROGRAM",)
