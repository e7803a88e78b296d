"""Processing and buffering of scanner batches until the end of the file.

Secrets are replaced and flagged rows are filled before a batch is buffered. Distinct strings are searched for
secrets once; rows are searched one by one only if a distinct string is a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.base import Redaction
from tracewarehouse.formats.json_text import quote, unquote
from tracewarehouse.formats.kineto import row_reader
from tracewarehouse.formats.kineto.columns import BatchColumns, Dictionaries, to_record_batch
from tracewarehouse.formats.kineto.scanner import CODES, ODD, SLOW, SUBNS, TYPED_TEXTS, Batch
from tracewarehouse.formats.kineto.times import BeginEndEvents, TimeUnit
from tracewarehouse.formats.redact import clean_value, flagged, redact, redact_events, suspects
from tracewarehouse.formats.spill import Spill

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import ColumnDictionary, Rows


class BatchStore:
    """The buffered batches of one file, with its dictionaries, redactions and file-wide facts."""

    def __init__(self, salt: bytes, spill: Path, *, in_ns: bool = False) -> None:
        self._in_ns = in_ns
        self.dictionaries = Dictionaries()
        self.facts = FileFacts()
        self.secrets = SecretSearch(salt)
        self.batches = Spill(spill)
        self.time_unit = TimeUnit()
        self.rows = 0

    def add(self, found: Iterable[Batch]) -> None:
        """Appends batches, in file order."""
        for batch in found:
            self._add(batch)

    def close(self) -> None:
        """Discards all batches."""
        self.batches.close()

    def _add(self, batch: Batch) -> None:
        self.dictionaries.begin(batch.dictionaries, batch.restarted)
        columns = BatchColumns.of(batch)
        self.secrets.clean_batch(batch, columns, self.rows, self.dictionaries)
        if (batch.flags & (ODD | SLOW | SUBNS)).any():
            self._fill(batch, columns)
        if self._in_ns:
            row_reader.to_ns(columns, np.flatnonzero((batch.flags & (ODD | SUBNS)) == 0))
        self.time_unit.add_times(columns)
        self.facts.add(columns, self.rows, self.dictionaries)
        self.batches.add(to_record_batch(columns, self.dictionaries))
        self.rows += batch.rows

    def _fill(self, batch: Batch, columns: BatchColumns) -> None:
        odd = np.flatnonzero(batch.flags & ODD)
        if odd.size:
            texts = self.secrets.clean_elements(_texts(batch, odd), odd + self.rows)
            row_reader.fill_odd(columns, odd, texts, self.dictionaries, in_ns=self._in_ns)
        typed = np.flatnonzero(batch.flags & (ODD | SLOW))
        if typed.size:
            row_reader.fill_arguments(columns, typed, self.dictionaries)
        fractions = np.flatnonzero((batch.flags & (ODD | SUBNS)) == SUBNS)
        if fractions.size:
            texts = _texts(batch, fractions).to_pylist()
            row_reader.fill_times(columns, fractions, texts, in_ns=self._in_ns)


def _texts(batch: Batch, rows: NDArray[np.int64]) -> pa.Array:
    texts = batch.texts["text"]
    return texts if len(rows) == batch.rows else texts.take(pa.array(rows))


# Columns of a kept batch that are no columns of a scanner.
_SECOND: Final = 10**9


@dataclass
class FileFacts:
    """Facts that depend on all rows of the file.

    `first_ns` is the smallest positive start of a slice in ns since the base time, rounded up.
    `begin_end_events` are the B and E rows that have a time. `process_names` are (pid token, args) of
    process_name metadata.
    """

    first_ns: int | None = None
    begin_end_events: list[BeginEndEvents] = field(default_factory=list)
    process_names: set[tuple[str | None, str | None]] = field(default_factory=set)

    def add(self, columns: BatchColumns, first: int, dictionaries: Dictionaries) -> None:
        """Adds the facts of a batch whose first row is the event `first`."""
        phases = columns.codes.get("ph")
        if phases is None:
            return
        ph = _code_of(dictionaries, "ph", ("X", "B", "E", "M"))
        self._add_start(columns, np.isin(phases, ph["X"]))
        if _any(phases, ph["B"], ph["E"]):
            self._add_begin_end(columns, first, dictionaries, ph)
        if _any(phases, ph["M"]):
            self._add_processes(columns, np.isin(phases, ph["M"]), dictionaries)

    def _add_start(self, columns: BatchColumns, is_slice: NDArray[np.bool_]) -> None:
        out_of_range = [ns for row, ns in columns.out_of_range_ns.items() if ns > 0 and is_slice[row]]
        self.first_ns = min(
            (*out_of_range, *([] if self.first_ns is None else [self.first_ns])), default=None
        )
        if "ts" not in columns.ints:
            return
        values, valid = columns.ints["ts"]
        if columns.fractions is not None:
            values = values.copy()
            values[columns.fractions.rows] += columns.fractions.ts > 0
        positive = values[is_slice & valid & (values > 0)]
        if positive.size:
            first = int(positive.min())
            self.first_ns = first if self.first_ns is None else min(first, self.first_ns)

    def _add_begin_end(
        self, columns: BatchColumns, first: int, dictionaries: Dictionaries, ph: Mapping[str, list[int]]
    ) -> None:
        phases = columns.codes["ph"]
        values, valid = columns.ints.get("ts") or _none(columns.rows)
        seconds, ns = np.divmod(values, _SECOND)
        for row, start_ns in columns.out_of_range_ns.items():
            seconds[row], ns[row] = divmod(start_ns, _SECOND)
        is_timed = valid.copy()
        is_timed[list(columns.out_of_range_ns)] = True
        rows = np.flatnonzero(np.isin(phases, ph["B"] + ph["E"]) & is_timed)
        fractions = np.zeros(columns.rows, np.int32)
        if columns.fractions is not None:
            fractions[columns.fractions.rows] = columns.fractions.ts
        tracks = [_texts_at(columns, name, rows, dictionaries) for name in ("pid", "tid")]
        is_begin = np.isin(phases[rows], ph["B"])
        self.begin_end_events.append(
            BeginEndEvents(rows + first, is_begin, seconds[rows], ns[rows], fractions[rows], *tracks)
        )

    def _add_processes(
        self, columns: BatchColumns, is_metadata: NDArray[np.bool_], dictionaries: Dictionaries
    ) -> None:
        names = columns.codes.get("name")
        args = columns.texts.get("args")
        if names is None or args is None:
            return
        rows = np.flatnonzero(
            is_metadata & np.isin(names, _code_of(dictionaries, "name", ("process_name",))["process_name"])
        )
        pids = _texts_at(columns, "pid", rows, dictionaries).to_pylist()
        self.process_names.update(zip(pids, args.take(pa.array(rows)).to_pylist(), strict=True))


def _texts_at(
    columns: BatchColumns, name: str, rows: NDArray[np.int64], dictionaries: Dictionaries
) -> pa.Array:
    codes = columns.codes.get(name)
    return pa.nulls(len(rows), pa.string()) if codes is None else dictionaries.of(name).texts(codes[rows])


def _none(rows: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)


def _any(codes: NDArray[np.int32], *wanted: list[int]) -> bool:
    return any(bool((codes == code).any()) for found in wanted for code in found)


def _code_of(dictionaries: Dictionaries, name: str, texts: tuple[str, ...]) -> dict[str, list[int]]:
    """The codes of each text, which the scanner and the row path may both have."""
    return {text: dictionaries.of(name).codes_with(text) for text in texts}


# Columns whose dictionary values are JSON, not strings.
_JSON: Final = frozenset(("pid", "tid", "extra", "shapes", "dtypes"))
_EVENT_FIELDS: Final = tuple(name for name in CODES if name not in TYPED_TEXTS)


@dataclass
class SecretSearch:
    """Replaces secrets batch by batch; `redactions` lists where they were."""

    salt: bytes
    redactions: list[Redaction] = field(default_factory=list)
    # Whether a distinct string is a secret or the key of one, so that each row must be searched.
    _search_rows: bool = False
    _searched: dict[str, int] = field(default_factory=dict)

    def clean_elements(self, texts: pa.Array, ids: Rows) -> list[str]:
        """The texts of complete elements without secrets."""
        clean, hits = redact_events(texts, self.salt, 0)
        self.redactions += [Redaction(int(ids[hit.event_id or 0]), hit.path, hit.kind) for hit in hits]
        found: list[str] = texts.to_pylist()
        for at, text in clean.items():
            found[at] = text
        return found

    def clean_batch(
        self, batch: Batch, columns: BatchColumns, first: int, dictionaries: Dictionaries
    ) -> None:
        """Replaces the secrets in the columns filled by the scanner; `first` is the id of the first row."""
        for name, found in batch.dictionaries.items():
            self._search_values(name, found, dictionaries.of(name), name in batch.restarted)
        if batch.new_strings is None or (not self._search_rows and _has_suspects(batch.new_strings)):
            self._search_rows = True
        for name in _EVENT_FIELDS:
            if name in columns.codes:
                self._note_values(name, columns, first, dictionaries.of(name))
        if self._search_rows:
            self._clean_rows(columns, first)

    def _search_values(
        self, name: str, found: pa.Array, dictionary: ColumnDictionary, restarted: bool
    ) -> None:
        """Searches the new values of a dictionary; stores the redacted form of those with a secret."""
        start = 0 if restarted else self._searched.get(name, 0)
        self._searched[name] = len(found)
        new = found.slice(start)
        if not len(new):
            return
        places = flagged(new) if name in _JSON else suspects(new)
        for at in places:
            value = new[at].as_py()
            clean = self._clean_value(name, value)
            if clean != value:
                dictionary.clean[start + at] = clean
                # The arguments contain the value, too.
                self._search_rows = self._search_rows or name in TYPED_TEXTS

    def _clean_value(self, name: str, value: str) -> str:
        return redact(value, self.salt)[0] if name in _JSON else clean_value(value, self.salt)[0]

    def _note_values(
        self, name: str, columns: BatchColumns, first: int, dictionary: ColumnDictionary
    ) -> None:
        """Records a redaction for each row whose value contains a secret."""
        secret = np.array([code for code in dictionary.clean if code >= 0], np.int32)
        if not secret.size:
            return
        codes = columns.codes[name]
        for at in np.flatnonzero(np.isin(codes, secret)).tolist():
            value = dictionary.of_scanner[int(codes[at])].as_py()
            self._note(first + at, name, value)

    def _note(self, event_id: int, name: str, value: str) -> None:
        if name == "extra":
            self.redactions += redact(value, self.salt, event_id)[1]
        else:
            text = value if name in _JSON else quote(value)
            self.redactions += redact(f'{{"{name}":{text}}}', self.salt, event_id)[1]

    def _clean_rows(self, columns: BatchColumns, first: int) -> None:
        """Replaces secrets in arguments and flow ids."""
        for name, key in (("args", "args"), ("flow_id", "id")):
            texts = columns.texts.get(name)
            if texts is None:
                continue
            is_json = name == "args"
            places = flagged(texts) if is_json else suspects(texts)
            clean = [self._clean_cell(key, texts[at].as_py(), first + at, is_json) for at in places]
            changed = [at for at, text in enumerate(clean) if text is not None]
            if changed:
                rows = np.array([places[at] for at in changed], np.int64)
                columns.set_texts(name, rows, pa.array([clean[at] for at in changed], pa.string()))

    def _clean_cell(self, key: str, value: str, event_id: int, is_json: bool) -> str | None:
        """The cell without its secrets; None if it has none."""
        clean, hits = redact(f'{{"{key}":{value if is_json else quote(value)}}}', self.salt, event_id)
        if not hits:
            return None
        self.redactions += hits
        cell = clean[len(key) + 4 : -1]
        return cell if is_json else unquote(cell)


def _has_suspects(strings: pa.Array) -> bool:
    """Whether a string, as written in the file, is a secret, contains one or is the key of one."""
    if pc.any(pc.match_substring(strings, "\\")).as_py():
        strings = pa.array([_decoded(text) for text in strings.to_pylist()], pa.string())
    return bool(suspects(strings))


def _decoded(text: str) -> str:
    return text if "\\" not in text else str(msgspec.json.decode(f'"{text}"'))
