"""Batches of a scanner until the end of the file: secrets replaced, flagged rows filled, kept.

A batch as it is kept until the end of the file, and what of it decides about all rows.

The search for secrets in a batch: once per distinct string, and row by row only where one was found."""

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
from tracewarehouse.formats.kineto.columns import BatchColumns, Dictionaries, kept
from tracewarehouse.formats.kineto.scanner import CODES, ODD, SLOW, SUBNS, TYPED_TEXTS, Batch
from tracewarehouse.formats.kineto.times import Brackets, TimeUnit
from tracewarehouse.formats.redact import clean_value, flagged, redact, redact_events, suspects
from tracewarehouse.formats.spill import Spill

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import Rows, Words


class Gathered:
    """The batches of one file so far."""

    def __init__(self, salt: bytes, spill: Path, *, in_ns: bool = False) -> None:
        self._in_ns = in_ns
        self.words = Dictionaries()
        self.facts = FileFacts()
        self.secrets = SecretSearch(salt)
        self.batches = Spill(spill)
        self.time_unit = TimeUnit()
        self.rows = 0

    def add(self, found: Iterable[Batch]) -> None:
        """Further batches, in file order."""
        for batch in found:
            self._add(batch)

    def close(self) -> None:
        """Forgets all batches."""
        self.batches.close()

    def _add(self, batch: Batch) -> None:
        self.words.begin(batch.words, batch.restarted)
        columns = BatchColumns.of(batch)
        self.secrets.clean_batch(batch, columns, self.rows, self.words)
        if (batch.flags & (ODD | SLOW | SUBNS)).any():
            self._fill(batch, columns)
        if self._in_ns:
            row_reader.to_ns(columns, np.flatnonzero((batch.flags & (ODD | SUBNS)) == 0))
        self.time_unit.add_times(columns)
        self.facts.add(columns, self.rows, self.words)
        self.batches.add(kept(columns, self.words))
        self.rows += batch.rows

    def _fill(self, batch: Batch, columns: BatchColumns) -> None:
        odd = np.flatnonzero(batch.flags & ODD)
        if odd.size:
            texts = self.secrets.clean_elements(_texts(batch, odd), odd + self.rows)
            row_reader.fill_odd(columns, odd, texts, self.words, in_ns=self._in_ns)
        typed = np.flatnonzero(batch.flags & (ODD | SLOW))
        if typed.size:
            row_reader.fill_arguments(columns, typed, self.words)
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
    """What the rows of the whole file say together.

    `first_ns` is the least positive start of a slice in ns from the base, rounded up. `brackets` are the B
    and E rows that have a time. `process_names` are (pid token, args) of rows that name a process.
    """

    first_ns: int | None = None
    brackets: list[Brackets] = field(default_factory=list)
    process_names: set[tuple[str | None, str | None]] = field(default_factory=set)

    def add(self, columns: BatchColumns, first: int, words: Dictionaries) -> None:
        """Looks at a further batch, whose first row is the event `first`."""
        phases = columns.codes.get("ph")
        if phases is None:
            return
        ph = _code_of(words, "ph", ("X", "B", "E", "M"))
        self._add_start(columns, np.isin(phases, ph["X"]))
        if _any(phases, ph["B"], ph["E"]):
            self._add_brackets(columns, first, words, ph)
        if _any(phases, ph["M"]):
            self._add_processes(columns, np.isin(phases, ph["M"]), words)

    def _add_start(self, columns: BatchColumns, is_slice: NDArray[np.bool_]) -> None:
        far = [ns for row, ns in columns.far.items() if ns > 0 and is_slice[row]]
        self.first_ns = min((*far, *([] if self.first_ns is None else [self.first_ns])), default=None)
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

    def _add_brackets(
        self, columns: BatchColumns, first: int, words: Dictionaries, ph: Mapping[str, list[int]]
    ) -> None:
        phases = columns.codes["ph"]
        values, valid = columns.ints.get("ts") or _none(columns.rows)
        seconds, ns = np.divmod(values, _SECOND)
        for row, far in columns.far.items():
            seconds[row], ns[row] = divmod(far, _SECOND)
        is_timed = valid.copy()
        is_timed[list(columns.far)] = True
        rows = np.flatnonzero(np.isin(phases, ph["B"] + ph["E"]) & is_timed)
        fractions = np.zeros(columns.rows, np.int32)
        if columns.fractions is not None:
            fractions[columns.fractions.rows] = columns.fractions.ts
        tracks = [_texts_at(columns, name, rows, words) for name in ("pid", "tid")]
        is_begin = np.isin(phases[rows], ph["B"])
        self.brackets.append(
            Brackets(rows + first, is_begin, seconds[rows], ns[rows], fractions[rows], *tracks)
        )

    def _add_processes(
        self, columns: BatchColumns, is_metadata: NDArray[np.bool_], words: Dictionaries
    ) -> None:
        names = columns.codes.get("name")
        args = columns.texts.get("args")
        if names is None or args is None:
            return
        rows = np.flatnonzero(
            is_metadata & np.isin(names, _code_of(words, "name", ("process_name",))["process_name"])
        )
        pids = _texts_at(columns, "pid", rows, words).to_pylist()
        self.process_names.update(zip(pids, args.take(pa.array(rows)).to_pylist(), strict=True))


def _texts_at(columns: BatchColumns, name: str, rows: NDArray[np.int64], words: Dictionaries) -> pa.Array:
    codes = columns.codes.get(name)
    return pa.nulls(len(rows), pa.string()) if codes is None else words.of(name).texts(codes[rows])


def _none(rows: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)


def _any(codes: NDArray[np.int32], *wanted: list[int]) -> bool:
    return any(bool((codes == code).any()) for found in wanted for code in found)


def _code_of(words: Dictionaries, name: str, texts: tuple[str, ...]) -> dict[str, list[int]]:
    """The codes of each text, which the scanner and the row path may both have."""
    return {text: words.of(name).codes_with(text) for text in texts}


# Columns whose words are JSON, not strings.
_JSON: Final = frozenset(("pid", "tid", "extra", "shapes", "dtypes"))
_OF_EVENT: Final = tuple(name for name in CODES if name not in TYPED_TEXTS)


@dataclass
class SecretSearch:
    """Replaces what looks like a secret, batch by batch; `redactions` says where."""

    salt: bytes
    redactions: list[Redaction] = field(default_factory=list)
    # Whether a string was found that is a secret or the key of one, so that each row must be looked at.
    _search_rows: bool = False
    _searched: dict[str, int] = field(default_factory=dict)

    def clean_elements(self, texts: pa.Array, ids: Rows) -> list[str]:
        """The texts of whole elements without their secrets."""
        clean, hits = redact_events(texts, self.salt, 0)
        self.redactions += [Redaction(int(ids[hit.event_id or 0]), hit.path, hit.kind) for hit in hits]
        found: list[str] = texts.to_pylist()
        for at, text in clean.items():
            found[at] = text
        return found

    def clean_batch(self, batch: Batch, columns: BatchColumns, first: int, words: Dictionaries) -> None:
        """Replaces the secrets in the columns that the scanner filled; `first` is the id of the first row."""
        for name, found in batch.words.items():
            self._search_words(name, found, words.of(name), name in batch.restarted)
        if batch.new_strings is None or (not self._search_rows and _has_suspects(batch.new_strings)):
            self._search_rows = True
        for name in _OF_EVENT:
            if name in columns.codes:
                self._note_words(name, columns, first, words.of(name))
        if self._search_rows:
            self._clean_rows(columns, first)

    def _search_words(self, name: str, found: pa.Array, words: Words, restarted: bool) -> None:
        """Looks at the words that are new; remembers those with a secret without it."""
        start = 0 if restarted else self._searched.get(name, 0)
        self._searched[name] = len(found)
        new = found.slice(start)
        if not len(new):
            return
        places = flagged(new) if name in _JSON else suspects(new)
        for at in places:
            word = new[at].as_py()
            clean = self._clean_word(name, word)
            if clean != word:
                words.clean[start + at] = clean
                # Arguments hold it too.
                self._search_rows = self._search_rows or name in TYPED_TEXTS

    def _clean_word(self, name: str, word: str) -> str:
        return redact(word, self.salt)[0] if name in _JSON else clean_value(word, self.salt)[0]

    def _note_words(self, name: str, columns: BatchColumns, first: int, words: Words) -> None:
        """Which rows have a word that held a secret."""
        secret = np.array([code for code in words.clean if code >= 0], np.int32)
        if not secret.size:
            return
        codes = columns.codes[name]
        for at in np.flatnonzero(np.isin(codes, secret)).tolist():
            word = words.of_scanner[int(codes[at])].as_py()
            self._note(first + at, name, word)

    def _note(self, event_id: int, name: str, word: str) -> None:
        if name == "extra":
            self.redactions += redact(word, self.salt, event_id)[1]
        else:
            text = word if name in _JSON else quote(word)
            self.redactions += redact(f'{{"{name}":{text}}}', self.salt, event_id)[1]

    def _clean_rows(self, columns: BatchColumns, first: int) -> None:
        """Replaces the secrets in arguments and flow ids."""
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
        """The cell without its secrets; None where it has none."""
        clean, hits = redact(f'{{"{key}":{value if is_json else quote(value)}}}', self.salt, event_id)
        if not hits:
            return None
        self.redactions += hits
        cell = clean[len(key) + 4 : -1]
        return cell if is_json else unquote(cell)


def _has_suspects(strings: pa.Array) -> bool:
    """Whether one of the strings, as they are in the file, is a secret, holds one or is the key of one."""
    if pc.any(pc.match_substring(strings, "\\")).as_py():
        strings = pa.array([_decoded(text) for text in strings.to_pylist()], pa.string())
    return bool(suspects(strings))


def _decoded(text: str) -> str:
    return text if "\\" not in text else str(msgspec.json.decode(f'"{text}"'))
