"""CSV files that Nsight Compute writes (`ncu --csv`): table `kernel_metrics`. They add to a rank."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import PartFormat
from tracewarehouse.formats.mapped import contract_of, selected
from tracewarehouse.formats.source_tables import Notes, RecordSource, declared_columns
from tracewarehouse.late_regex import late_regex

TABLE: Final = "kernel_metrics"
# The columns that describe a launch; in the wide form all others are metrics.
_LAUNCH: Final[tuple[str, ...]] = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
    "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
)  # fmt: skip
_LONG: Final = ("Metric Name", "Metric Unit", "Metric Value")
# As Python objects, rows take ten times as much memory.
_BATCH_ROWS: Final = 10_000


def is_header(cells: Sequence[str]) -> bool:
    """Whether these are the column names of an Nsight Compute CSV file."""
    return "Kernel Name" in cells and "ID" in cells and ("Metric Name" in cells or "Grid Size" in cells)


def metrics(rows: Iterable[Sequence[str]], path: Path) -> Iterator[dict[str, str]]:
    """The metrics in the rows of a file, each with its launch; lines before the header are messages."""
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
            launch = {name: row.pop(name) for name in _LAUNCH if name in row}
            for name, value in row.items():
                unit = units.get(name, "")
                yield {**launch, "Metric Name": name, "Metric Unit": unit, "Metric Value": value}
        elif row.get("ID", "").isdigit() and row.get("Metric Name"):  # rules have rows without a metric
            yield row


def table(found: Iterable[dict[str, str]], notes: Notes) -> pa.Table:
    """The rows in base units; a value that is not a number is a text."""
    contract, schema = contract_of(NAME), declared_columns(TABLE, encoded=True)
    text = schema.field("text").type
    names = [name for name, _ in contract.raw_tables[0].columns]
    given: list[pa.Table] = []
    rows = enumerate(found)
    while some := list(islice(rows, _BATCH_ROWS)):
        ids = pa.array([place for place, _ in some])
        texts = {name: pa.array([row.get(name.replace("_", " ")) for _, row in some], text) for name in names}
        given.append(pa.table(texts | {"metric_id": ids}))

    shown = (
        selected(NAME, {"given": columns}, decimal=".").column("own_decimal").drop_null() for columns in given
    )
    decimal = next((each[0].as_py() for each in shown if len(each)), ".")
    done = [schema.empty_table()]
    while given:
        each = selected(NAME, {"given": given.pop(0)}, decimal=decimal)
        for example in pc.list_flatten(each.column("unusable")).drop_null().to_pylist():
            notes.add("unusable_value", 1, example)
        # A copy: what DuckDB returned is freed with the last of its columns.
        done.append(each.select(schema.names).cast(schema).take(pa.array(range(len(each)))))
    return pa.concat_tables(done).unify_dictionaries()


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
            lines = (line.decode(errors="replace") for line in BytesIO(text))
            found = table(metrics(rows_of(lines), self._path), self._notes)
        except csv.Error as error:  # a longer field than any that Nsight Compute writes
            raise TraceFormatError(self._path, str(error), hint="write it again with ncu --csv") from error
        if not found.num_rows:
            raise TraceFormatError(self._path, "no metrics", hint="no kernel was profiled; see its messages")
        yield TABLE, found


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
