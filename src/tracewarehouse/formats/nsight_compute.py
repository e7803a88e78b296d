"""CSV files that Nsight Compute writes (`ncu --csv`): table `kernel_metrics`. They add to a rank."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
from msgspec import Struct

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import PartFormat
from tracewarehouse.formats.source_tables import Notes, RecordSource, declared_columns
from tracewarehouse.late_regex import late_regex

# A single separator with groups of three digits behind it says nothing: 1,215 is 1215 or 1.215.
_GROUPED: Final = r"[+-]?[1-9]\d{0,2}(?:\SEP\d{3})+"
_NUMBER: Final = late_regex(r"[+-]?(?:\d+(?:[.,]\d+)*|inf|nan)(?:e[+-]?\d+)?", re.IGNORECASE)
# Thousands may also be separated by spaces, narrow ones included, or by apostrophes.
_SPACES: Final = late_regex(r"(?<=\d)[\s\u00a0\u202f'\u2019](?=\d{3})")
_PREFIXES: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "k": 1e3}
_SCALED: Final = late_regex(
    r"([KMGTk])(?=(?:byte|inst|cycle|sector|request|wavefront|Hz|hz|thread|warp|block|bit)s?\b)"
)
_NS: Final = {
    "nsecond": 1, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9
}  # fmt: skip


def number(text: str, decimal: str) -> float | None:
    """The number, with this decimal separator; None if the text is none."""
    text, thousands = _SPACES.sub("", text.strip()), "," if decimal == "." else "."
    if not _NUMBER.fullmatch(text):
        return None
    whole, point, fraction = text.partition(decimal)
    if decimal in fraction or thousands in fraction:
        return None
    return float(whole.replace(thousands, "") + (point and ".") + fraction)


def decimal_of(texts: Iterable[str]) -> str:
    """The decimal separator that the numbers of a file follow; a point if no number shows it."""
    found = (_decimal(_SPACES.sub("", text.strip())) for text in texts)
    return next((decimal for decimal in found if decimal is not None), ".")


def _decimal(text: str) -> str | None:
    """The decimal separator that a number shows; None if it could be either."""
    if not _NUMBER.fullmatch(text):
        return None
    found = [sign for sign in text if sign in ".,"]
    if len(set(found)) == 2:
        return found[-1]
    if len(found) > 1:
        return "," if found[0] == "." else "."
    return found[0] if found and not re.fullmatch(_GROUPED.replace("SEP", found[0]), text) else None


def base_unit(unit: str) -> tuple[str, float]:
    """The base unit of a unit, and the number of base units in it: times in ns, rates per second."""
    name, _, per = unit.strip().partition("/")
    factor = 1.0
    if found := _SCALED.match(name):
        name, factor = name[1:], _PREFIXES[found[1]]
    if not per and name in _NS:
        return "ns", _NS[name]
    if per in _NS:
        per, factor = "second", factor * 1e9 / _NS[per]
    return (f"{name}/{per}" if per else name), factor


TABLE: Final = "kernel_metrics"
# The columns that describe a launch; in the wide form all others are metrics.
_LAUNCH: Final = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
    "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
)  # fmt: skip
_LONG: Final = ("Metric Name", "Metric Unit", "Metric Value")
_SIZE: Final = late_regex(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?")
_NONE: Final = ("", "n/a", "N/A", "(!) n/a", "nan", "-nan")
# As Python objects, rows take ten times as much memory.
_BATCH_ROWS: Final = 10_000


def is_header(cells: Sequence[str]) -> bool:
    """Whether these are the column names of an Nsight Compute CSV file."""
    return "Kernel Name" in cells and "ID" in cells and ("Metric Name" in cells or "Grid Size" in cells)


class Metric(Struct, frozen=True):
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
    is_long, units = all(name in header for name in _LONG), dict[str, str]()
    for cells in lines:
        row = dict(zip(header, cells, strict=False))
        if not is_long and not row.get("ID") and not units:
            units = row
        elif row.get("ID", "").isdigit() and not is_long:
            names = (name for name in row if name not in _LAUNCH)
            yield from (Metric(row, name, units.get(name, ""), row[name]) for name in names)
        elif row.get("ID", "").isdigit() and row.get("Metric Name"):  # rules have rows without a metric
            yield Metric(row, row["Metric Name"], row.get("Metric Unit", ""), row.get("Metric Value", ""))


def table(found: Iterable[Metric], decimal: str, notes: Notes) -> pa.Table:
    """The rows in base units; a value that is not a number is a text."""
    rows = (_row(place, metric, decimal, notes) for place, metric in enumerate(found))
    schema = declared_columns(TABLE, encoded=True)
    batches = [schema.empty_table()]
    while batch := list(islice(rows, _BATCH_ROWS)):
        batches.append(pa.Table.from_pylist(batch, schema=schema))
    return pa.concat_tables(batches).unify_dictionaries()


def _row(place: int, metric: Metric, decimal: str, notes: Notes) -> dict[str, object]:
    launch = metric.launch
    unit, factor = base_unit(metric.unit)
    value = None if metric.value.strip() in _NONE else number(metric.value, decimal)
    text = metric.value.strip() if value is None and metric.value.strip() not in _NONE else None
    return {
        "metric_id": place,
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


NAME: Final = "nsight_compute"
# Messages of the profiler and of the program may precede the header.
_SEARCHED_BYTES: Final = 1 << 16
_LONG_LINE: Final = late_regex(rb"[^\n]{1048576}")


class NsightComputeSource(RecordSource):
    """A Source that fills `kernel_metrics`."""

    most_bytes = (256 << 20, "more than 256 MiB of metrics", "profile fewer launches")

    def _walk(self, content: IO[bytes]) -> Iterator[tuple[str, pa.Table]]:
        if _LONG_LINE.search(text := content.read()):
            raise TraceFormatError(self._path, "a line of more than 1 MiB", hint="write it with ncu --csv")
        try:
            decimal = decimal_of(metric.value for metric in self._metrics(text))
            found = table(self._metrics(text), decimal, self._notes)
        except csv.Error as error:  # a longer field than any that Nsight Compute writes
            raise TraceFormatError(self._path, str(error), hint="write it again with ncu --csv") from error
        if not found.num_rows:
            raise TraceFormatError(self._path, "no metrics", hint="no kernel was profiled; see its messages")
        yield TABLE, found

    def _metrics(self, text: bytes) -> Iterator[Metric]:
        lines = (line.decode(errors="replace") for line in BytesIO(text))
        return metrics(rows_of(lines), self._path)


class NsightComputeFormat(PartFormat):
    """A Format."""

    name = addition = NAME
    source = NsightComputeSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether a line is the header of the table of metrics."""
        if path.is_dir() or b"Kernel Name" not in head[:_SEARCHED_BYTES]:
            return False
        lines = head[:_SEARCHED_BYTES].decode(errors="replace").splitlines()
        return any(is_header(cells) for cells in rows_of(line for line in lines if "Kernel Name" in line))
