"""Rows of `key_averages` as the text table that PyTorch's profiler prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

_GAP: Final = "  "
_WIDTH: Final = 12
_LONGEST_NAME: Final = 55
_LONGEST_SHAPES: Final = 80
_TIMES_US: Final = ((1e6, "s"), (1e3, "ms"))
_SIZES: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))

Row = Mapping[str, Any]


def profiler_tables(rows: Iterable[Row], all_rows: Iterable[Row]) -> str:
    """A table for each rank, with a line that names it if there are several; totals are those of all rows."""
    ranks, totals = _by_rank(rows), _by_rank(all_rows)
    texts = [
        (f"{run} rank {rank}\n" if len(ranks) > 1 else "") + _table(of_rank, totals[run, rank])
        for (run, rank), of_rank in ranks.items()
    ]
    return "\n".join(texts) or "(no rows)\n"


def _by_rank(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["run_id"], row["rank"]), []).append(row)
    return found


def _table(rows: Sequence[Row], all_rows: Sequence[Row]) -> str:
    cpu_ns = sum(row["self_cpu_ns"] for row in all_rows)
    device_ns = _device_ns(all_rows)
    columns = [
        _texts("Name", [row["name"] for row in rows], _LONGEST_NAME),
        *_time_columns(rows, "Self CPU", "self_cpu_ns", cpu_ns),
        *_time_columns(rows, "CPU total", "cpu_total_ns", cpu_ns),
        _mean("CPU time avg", "cpu_total_ns", rows),
    ]
    if device_ns is not None:
        columns += _time_columns(rows, "Self device", "self_device_ns", device_ns)[::-1]
        columns += [
            _column("Device total", [time(row["device_total_ns"]) for row in rows]),
            _mean("Device time avg", "device_total_ns", rows),
        ]
    columns += _memory_columns(rows)
    columns.append(_column("# of Calls", [str(row["count"]) for row in rows]))
    for name, key in (("Input Shapes", "shapes"), ("Source Location", "stack")):
        if any(row[key] is not None for row in rows):
            columns.append(_texts(name, [row[key] or "" for row in rows], _LONGEST_SHAPES))
    totals = [f"Self CPU time total: {time(cpu_ns)}"]
    if device_ns is not None:
        totals.append(f"Self device time total: {time(device_ns)}")
    return _laid_out(columns, totals)


def _device_ns(rows: Sequence[Row]) -> int | None:
    """The time of all GPU activities; None if the rank has none. Annotations on the GPU would repeat it."""
    if all(row["self_device_ns"] is None for row in rows):
        return None
    return sum(int(row["self_device_ns"]) for row in rows if row["on_gpu"] and not row["is_annotation"])


def _time_columns(rows: Sequence[Row], name: str, key: str, total_ns: int) -> list[list[str]]:
    return [
        _column(f"{name} %", [_percent(row[key], total_ns) for row in rows]),
        _column(name, [time(row[key]) for row in rows]),
    ]


def _mean(name: str, key: str, rows: Sequence[Row]) -> list[str]:
    return _column(name, [time(row[key] / row["count"]) for row in rows])


def _memory_columns(rows: Sequence[Row]) -> list[list[str]]:
    if all(row["cpu_memory_bytes"] is None for row in rows):
        return []
    found = [
        ("CPU Mem", "cpu_memory_bytes"),
        ("Self CPU Mem", "self_cpu_memory_bytes"),
        ("Device Mem", "device_memory_bytes"),
        ("Self Device Mem", "self_device_memory_bytes"),
    ]
    if all(row["self_device_ns"] is None for row in rows):
        del found[2:]
    return [_column(name, [size(row[key]) for row in rows]) for name, key in found]


def _column(name: str, cells: Sequence[str]) -> list[str]:
    """Heading and cells, right-aligned."""
    return _aligned([name, *cells], _WIDTH)


def _texts(name: str, cells: Sequence[str], longest: int) -> list[str]:
    """Heading and cells, long ones cut."""
    cut = [cell if len(cell) <= longest else cell[: longest - 3] + "..." for cell in cells]
    return _aligned([name, *cut], _WIDTH)


def _aligned(cells: Sequence[str], least: int) -> list[str]:
    width = max(least, *map(len, cells))
    return [cell.rjust(width) for cell in cells]


def _laid_out(columns: Sequence[Sequence[str]], totals: Sequence[str]) -> str:
    ruler = _GAP.join("-" * len(column[0]) for column in columns)
    heading, *body = [_GAP.join(cells) for cells in zip(*columns, strict=True)]
    return "\n".join([ruler, heading, ruler, *body, ruler, *totals, ""])


def _percent(ns: int, total_ns: int) -> str:
    return f"{100 * ns / total_ns:.2f}%" if total_ns else "0.00%"


def time(ns: float) -> str:
    """A time in PyTorch's units, always with three digits after the point."""
    us = ns / 1000
    return next((f"{us / scale:.3f}{unit}" for scale, unit in _TIMES_US if us >= scale), f"{us:.3f}us")


def size(count: int) -> str:
    """A number of bytes in PyTorch's units."""
    return next(
        (f"{count / scale:.2f} {unit}" for scale, unit in _SIZES if abs(count) >= scale), f"{count} B"
    )


AS_PRINTED: Final[Mapping[str, Callable[[Iterable[Row], Iterable[Row]], str]]] = {
    "key_averages": profiler_tables
}
