"""Table `kernel_metrics` from Nsight Compute CSV: a line per metric, or a column per metric (raw page)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.nsight_compute.quantities import Locale, base_unit, locale_of
from tracewarehouse.formats.source_tables import Notes

TABLE: Final = "kernel_metrics"
# The columns that describe a launch; in the wide form all others are metrics.
_LAUNCH: Final = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
    "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
)  # fmt: skip
_LONG: Final = ("Metric Name", "Metric Unit", "Metric Value")
_SIZE: Final = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?")
_NONE: Final = ("", "n/a", "N/A", "(!) n/a", "nan", "-nan")
_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema({
    "metric_id": pa.int64(), "launch": pa.int64(), "kernel": _TEXT, "process": _TEXT, "device": pa.int64(),
    "stream": pa.int64(), "grid_x": pa.int64(), "grid_y": pa.int64(), "grid_z": pa.int64(),
    "block_x": pa.int64(), "block_y": pa.int64(), "block_z": pa.int64(), "section": _TEXT, "metric": _TEXT,
    "unit": _TEXT, "value": pa.float64(), "text": _TEXT,
})  # fmt: skip


def is_header(cells: Sequence[str]) -> bool:
    """Whether these are the column names of an Nsight Compute CSV file."""
    return "Kernel Name" in cells and "ID" in cells and ("Metric Name" in cells or "Grid Size" in cells)


@dataclass(frozen=True)
class Metric:
    """A metric of a launch, as printed."""

    launch: dict[str, str]
    name: str
    unit: str
    value: str


def metrics(rows: Iterable[Sequence[str]], path: Path) -> Iterator[Metric]:
    """The metrics in the rows of a file; lines before the header are messages of the profiler."""
    lines = iter(rows)
    header = next((cells for cells in lines if is_header(cells)), None)
    if header is None:
        raise TraceFormatError(path, "no header of Nsight Compute CSV", hint="write it with ncu --csv")
    if all(name in header for name in _LONG):
        yield from _long(header, lines)
    else:
        yield from _wide(header, lines)


def _long(header: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[Metric]:
    for cells in lines:
        row = dict(zip(header, cells, strict=False))
        # Rules have rows without a metric.
        if row.get("ID", "").isdigit() and row.get("Metric Name"):
            yield Metric(row, row["Metric Name"], row.get("Metric Unit", ""), row.get("Metric Value", ""))


def _wide(header: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[Metric]:
    units: dict[str, str] = {}
    for cells in lines:
        row = dict(zip(header, cells, strict=False))
        if not row.get("ID") and not units:
            units = row
        elif row.get("ID", "").isdigit():
            names = (name for name in row if name not in _LAUNCH)
            yield from (Metric(row, name, units.get(name, ""), row[name]) for name in names)


def table(found: Sequence[Metric], notes: Notes) -> pa.Table:
    """The rows in base units; a value that is not a number is a text."""
    locale = locale_of(metric.value for metric in found)
    rows = [_row(number, metric, locale, notes) for number, metric in enumerate(found)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(number: int, metric: Metric, locale: Locale, notes: Notes) -> dict[str, object]:
    launch = metric.launch
    unit, factor = base_unit(metric.unit)
    value = None if metric.value.strip() in _NONE else locale.number(metric.value)
    text = metric.value.strip() if value is None and metric.value.strip() not in _NONE else None
    return {
        "metric_id": number,
        "launch": int(launch["ID"]),
        "kernel": launch.get("Kernel Name") or None,
        "process": launch.get("Process ID") or None,
        "device": _int(launch.get("Device")),
        "stream": _int(launch.get("Stream")),
        **_size("grid", launch.get("Grid Size"), notes),
        **_size("block", launch.get("Block Size"), notes),
        "section": launch.get("Section Name") or None,
        "metric": metric.name,
        "unit": unit or None,
        "value": None if value is None else value * factor,
        "text": text,
    }


def _size(name: str, text: str | None, notes: Notes) -> dict[str, int | None]:
    found = _SIZE.fullmatch((text or "").strip())
    if text and found is None:
        notes.add("unusable_value", 1, f"{name}: {text}")
    values = map(int, found.groups()) if found else (None,) * 3
    return dict(zip((f"{name}_x", f"{name}_y", f"{name}_z"), values, strict=True))


def _int(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdecimal() else None


def rows_of(lines: Iterable[str]) -> Iterator[list[str]]:
    """The cells of each line, without messages of the profiler (==PROF==)."""
    return csv.reader(line for line in lines if not line.startswith("==") and line.strip())
