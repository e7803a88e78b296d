"""The search for secrets in a batch: once per distinct string, and row by row only where one was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from tracewarehouse.formats.base import Redaction
from tracewarehouse.formats.json_text import quote, unquote
from tracewarehouse.formats.kineto.batch import CODES, Batch
from tracewarehouse.formats.kineto.typed_args import TYPED_TEXTS
from tracewarehouse.formats.redact import Redactor

if TYPE_CHECKING:
    from tracewarehouse.formats.kineto.columns import BatchColumns, Rows
    from tracewarehouse.formats.kineto.words import Dictionaries, Words

# Columns whose words are JSON, not strings.
_JSON: Final = frozenset(("pid", "tid", "extra", "shapes", "dtypes"))
_OF_EVENT: Final = tuple(name for name in CODES if name not in TYPED_TEXTS)


@dataclass
class SecretSearch:
    """Replaces what looks like a secret, batch by batch; `redactions` says where."""

    redactor: Redactor
    redactions: list[Redaction] = field(default_factory=list)
    # Whether a string was found that is a secret or the key of one, so that each row must be looked at.
    _search_rows: bool = False
    _searched: dict[str, int] = field(default_factory=dict)

    def clean_elements(self, texts: pa.Array, ids: Rows) -> list[str]:
        """The texts of whole elements without their secrets."""
        clean, hits = self.redactor.events(texts, 0)
        self.redactions += [Redaction(int(ids[hit.event_id or 0]), hit.path, hit.kind) for hit in hits]
        found: list[str] = texts.to_pylist()
        for at, text in clean.items():
            found[at] = text
        return found

    def clean_batch(self, batch: Batch, columns: BatchColumns, first: int, words: Dictionaries) -> None:
        """Replaces the secrets in the columns that the scanner filled; `first` is the id of the first row."""
        self._search_new(batch, words)
        for name in _OF_EVENT:
            if name in columns.codes:
                self._note_words(name, columns, first, words.of(name))
        if self._search_rows:
            self._clean_rows(columns, first)

    def _search_new(self, batch: Batch, words: Dictionaries) -> None:
        """Looks at the strings that are new in a batch, all at once."""
        parts = [(name, *self._new_words(name, batch)) for name in batch.words]
        strings = batch.new_strings
        if strings is None:
            self._search_rows = True
            strings = pa.array([], pa.string())
        places = self.redactor.flagged(pa.concat_arrays([*(new for _, _, new in parts), strings]))
        first = 0
        for name, start, new in parts:
            mine = [at - first for at in places if first <= at < first + len(new)]
            self._search_words(name, words.of(name), start, {at: new[at].as_py() for at in mine})
            first += len(new)
        if not self._search_rows:
            found = (_decoded(strings[at - first].as_py()) for at in places if at >= first)
            self._search_rows = any(self._is_suspect(string) for string in found)

    def _new_words(self, name: str, batch: Batch) -> tuple[int, pa.Array]:
        """Where the words of a column begin that were not looked at before, and those words."""
        found = batch.words[name]
        start = 0 if name in batch.restarted else self._searched.get(name, 0)
        self._searched[name] = len(found)
        return start, found.slice(start)

    def _is_suspect(self, string: str) -> bool:
        return self.redactor.is_weak_key(string) or self.redactor.is_suspect(string)

    def _search_words(self, name: str, words: Words, start: int, flagged: Mapping[int, str]) -> None:
        """Remembers the words with a secret without it."""
        for at, word in flagged.items():
            clean = self._clean_word(name, word)
            if clean != word:
                words.clean[start + at] = clean
                # Arguments hold it too.
                self._search_rows = self._search_rows or name in TYPED_TEXTS

    def _clean_word(self, name: str, word: str) -> str:
        return (self.redactor.text(word) if name in _JSON else self.redactor.clean(word))[0]

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
            self.redactions += self.redactor.text(word, event_id)[1]
        else:
            text = word if name in _JSON else quote(word)
            self.redactions += self.redactor.text(f'{{"{name}":{text}}}', event_id)[1]

    def _clean_rows(self, columns: BatchColumns, first: int) -> None:
        """Replaces the secrets in arguments and flow ids."""
        for name, key in (("args", "args"), ("flow_id", "id")):
            texts = columns.texts.get(name)
            if texts is None:
                continue
            is_json = name == "args"
            places = self.redactor.flagged(texts) if is_json else self.redactor.suspects(texts)
            clean = [self._clean_cell(key, texts[at].as_py(), first + at, is_json) for at in places]
            changed = [at for at, text in enumerate(clean) if text is not None]
            if changed:
                rows = np.array([places[at] for at in changed], np.int64)
                columns.set_texts(name, rows, pa.array([clean[at] for at in changed], pa.string()))

    def _clean_cell(self, key: str, value: str, event_id: int, is_json: bool) -> str | None:
        """The cell without its secrets; None where it has none."""
        text = f'{{"{key}":{value if is_json else quote(value)}}}'
        clean, hits = self.redactor.text(text, event_id)
        if not hits:
            return None
        self.redactions += hits
        cell = clean[len(key) + 4 : -1]
        return cell if is_json else unquote(cell)


def _decoded(text: str) -> str:
    return text if "\\" not in text else str(msgspec.json.decode(f'"{text}"'))
