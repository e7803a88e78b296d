"""The memory timeline of torch.profiler: a JSON list of [time, action, bytes, category]. Fills one table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Outcome, PartFormat
from tracewarehouse.formats.file_text import holds_objects
from tracewarehouse.formats.kineto.batches import Spill
from tracewarehouse.formats.kineto.document import Document
from tracewarehouse.formats.kineto.scanner import strict_elements, strings
from tracewarehouse.formats.mapped import selected
from tracewarehouse.formats.source_tables import TextSource, declared_columns
from tracewarehouse.late_regex import late_regex

TABLE: Final = "memory_timeline"
# Indexed by torch's numbers: actions start at 1, categories at 0.
ACTIONS: Final = ("", "preexisting", "create", "increment_version", "destroy")
CATEGORIES: Final = (
    "parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail",
    "unknown",
)  # fmt: skip


def rows(elements: pa.Array, first: int) -> pa.RecordBatch:
    """One row per minified element; `first` is the position of the first element."""
    names = {"actions": " ".join(ACTIONS[1:]), "categories": " ".join(CATEGORIES)}
    ids = pa.array(np.arange(first, first + len(elements)))
    found = selected("timeline_elements", {"given": pa.table({"element": elements})}, **names).add_column(
        0, "event_id", ids
    )
    return found.combine_chunks().to_batches()[0].cast(declared_columns(TABLE))


NAME: Final = "memory_timeline"
_FIRST: Final = late_regex(rb"\s*\[\s*\[\s*-?[0-9]+\s*,\s*-?[0-9]+\s*,\s*-?[0-9]+\s*,\s*-?[0-9]+\s*\]")


class MemoryTimelineSource(TextSource):
    """A Source that fills `memory_timeline` in place of activities."""

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The rows. They can be read once."""
        if self._unchanged:
            return {}
        return {TABLE: pa.RecordBatchReader.from_batches(declared_columns(TABLE), self._batches.take())}

    def outcome(self) -> Outcome:
        """The facts about the file."""
        found = super().outcome()
        if self._unchanged:
            return found
        losses, repaired = self._losses, len(self._repaired)
        return replace(
            found, events=self._row_count, status=losses.status, losses=losses.all(), repaired=repaired
        )

    def _read(self) -> None:
        """Reads the file, a damaged one as far as possible."""
        self._batches, self._row_count = Spill(self._request.spill), 0
        self._repaired: list[int] = []
        document, read_bytes = Document(self._take_text()), 0
        for chunk in document.elements():
            self._repaired += [self._row_count + at for at in chunk.repaired]
            if chunk.events:
                self._add(strings(strict_elements(chunk.array) or ()))
            read_bytes += len(chunk.array)
            if self._request.progress is not None:
                self._request.progress(read_bytes)
        self._losses = document.losses
        for number in self._repaired:  # the table has no column for them
            self._notes.add("repaired_event", 1, f"#{number}")
        if not self._row_count:
            raise TraceFormatError(
                self._path, "no complete element found", hint="copy or record the timeline again"
            )

    def _add(self, texts: pa.StringArray) -> None:
        clean, hits = self._redactor.events(texts, self._row_count)
        self._redactions += hits
        elements = [clean.get(at, text) for at, text in enumerate(texts.to_pylist())]
        self._batches.add(rows(pa.array(elements, pa.string()), self._row_count))
        self._row_count += len(texts)


class MemoryTimelineFormat(PartFormat):
    """A Format."""

    name = NAME
    source = MemoryTimelineSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a list that starts with a list of four integers and has no object in `head`."""
        return _FIRST.match(head) is not None and not holds_objects(head)
