"""The memory timeline of torch.profiler: a JSON list of [time, action, bytes, category]. Fills one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Outcome, Part, PartFormat, Request
from tracewarehouse.formats.file_text import FileContent, digest_of, holds_objects, read_text
from tracewarehouse.formats.kineto.batches import Spill
from tracewarehouse.formats.kineto.document import Document
from tracewarehouse.formats.kineto.event_array import Losses
from tracewarehouse.formats.kineto.scanner import Batch, PythonScanner
from tracewarehouse.formats.source_tables import FileSource, declared_columns
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from numpy.typing import NDArray

TABLE: Final = "memory_timeline"
# Indexed by torch's numbers: actions start at 1, categories at 0.
ACTIONS: Final = (None, "preexisting", "create", "increment_version", "destroy")
CATEGORIES: Final = (
    "parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail",
    "unknown",
)  # fmt: skip
_CHANGE: Final = msgspec.json.Decoder(list[tuple[int, int, int, int]])
_ONE: Final = msgspec.json.Decoder(tuple[int, int, int, int])
_LIMIT: Final = 2**63


def rows(texts: Sequence[bytes], first: int) -> pa.RecordBatch:
    """One row per minified element; `first` is the position of the first element."""
    changes = _changes(texts)
    irregular = [at for at, change in enumerate(changes) if change is None]
    numbers = np.array([change or (0, 0, 0, 0) for change in changes], np.int64).reshape(-1, 4)
    is_change = np.ones(len(texts), np.bool_)
    is_change[irregular] = False
    time, action, size, category = numbers.T
    known_time = is_change & (time >= 0)
    actions, known_action = _named(action, ACTIONS, is_change)
    categories, known_category = _named(category, CATEGORIES, is_change)
    elements = [
        None if change is not None else bytes(text).decode()
        for change, text in zip(changes, texts, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(first, first + len(texts))),
            pa.array(time, mask=~known_time),
            actions,
            pa.array(size, mask=~is_change),
            categories,
            pa.array(time, mask=~is_change | known_time),
            pa.array(action, mask=~is_change | known_action),
            pa.array(category, mask=~is_change | known_category),
            pa.array(elements, pa.string()),
        ],
        schema=declared_columns(TABLE),
    )


def _changes(texts: Sequence[bytes]) -> Sequence[tuple[int, int, int, int] | None]:
    joined = b"[" + b",".join(texts) + b"]"
    try:
        found = _CHANGE.decode(joined)
    except (msgspec.DecodeError, RecursionError):
        return [_change(text) for text in texts]
    if all(_fits(change) for change in found) and msgspec.json.encode(found) == joined:
        return found
    return [_change(text) for text in texts]


def _change(text: bytes) -> tuple[int, int, int, int] | None:
    """The four numbers of an element; None if it has another form or formatting does not reproduce it."""
    try:
        found = _ONE.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if _fits(found) and msgspec.json.encode(found) == bytes(text) else None


def _fits(change: tuple[int, int, int, int]) -> bool:
    """Whether the numbers fit 64 bits; torch's numbers of action and category are never negative."""
    return all(-_LIMIT <= part < _LIMIT for part in change) and change[1] >= 0 and change[3] >= 0


def _named(
    numbers: NDArray[np.int64], names: Sequence[str | None], is_change: NDArray[np.bool_]
) -> tuple[pa.Array, NDArray[np.bool_]]:
    """The name of each number, and which numbers have one."""
    words = pa.array(names, pa.string())
    has_name = np.append(words.is_valid().to_numpy(zero_copy_only=False), False)
    places = np.where((numbers >= 0) & (numbers < len(names)), numbers, len(names))
    known = is_change & has_name[places]
    return words.take(pa.array(np.where(known, places, 0), mask=~known)), known


NAME: Final = "memory_timeline"
_FIRST: Final = late_regex(rb"\s*\[\s*\[\s*-?[0-9]+\s*,\s*-?[0-9]+\s*,\s*-?[0-9]+\s*,\s*-?[0-9]+\s*\]")


class MemoryTimelineSource(FileSource):
    """A Source that fills `memory_timeline` only."""

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        super().__init__(path, part, request)
        self._batches = Spill(request.spill)
        self._row_count = 0
        self._repaired: list[int] = []
        self._losses = Losses()
        if request.known_digest is not None and (content := digest_of(path)).digest == request.known_digest:
            self._content, self._unchanged = content, True
        else:
            self._read()

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The rows. They can be read once."""
        if self._unchanged:
            return {}
        return {TABLE: pa.RecordBatchReader.from_batches(declared_columns(TABLE), self._batches.take())}

    @property
    def _events(self) -> int:
        return self._row_count

    def outcome(self) -> Outcome:
        """The facts about the file."""
        losses = self._losses
        return replace(
            super().outcome(), status=losses.status, losses=losses.all(), repaired=len(self._repaired)
        )

    def _read(self) -> None:
        """Reads the file, a damaged one as far as possible."""
        text = read_text(self._path, self._request.spill)
        self._content = FileContent(text.digest, text.text_bytes, text.stored_bytes)
        document, scanner, read_bytes = Document(text), PythonScanner(), 0
        for chunk in document.elements():
            self._repaired += [scanner.rows + at for at in chunk.repaired]
            self._add(scanner.feed_array(chunk.array))
            read_bytes += len(chunk.array)
            if self._request.progress is not None:
                self._request.progress(read_bytes)
        if (batch := scanner.flush()) is not None:
            self._add([batch])
        self._losses = document.losses
        for number in self._repaired:  # the table has no column for them
            self._notes.add("repaired_event", 1, f"#{number}")
        if not self._row_count:
            raise TraceFormatError(
                self._path, "no complete element found", hint="copy or record the timeline again"
            )

    def _add(self, found: Sequence[Batch]) -> None:
        for batch in found:
            texts = batch.texts["text"]
            clean, hits = self._redactor.events(texts, self._row_count)
            self._redactions += hits
            found_texts = [clean.get(at, text) for at, text in enumerate(texts.to_pylist())]
            self._batches.add(rows([text.encode() for text in found_texts], self._row_count))
            self._row_count += batch.rows


class MemoryTimelineFormat(PartFormat):
    """A Format."""

    name = NAME
    source = MemoryTimelineSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a list that starts with a list of four integers and has no object in `head`."""
        return _FIRST.match(head) is not None and not holds_objects(head)
