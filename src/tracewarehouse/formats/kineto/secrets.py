"""The search for secrets in a batch: once per distinct string, and row by row only where one was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.base import Redaction
from tracewarehouse.formats.json_text import quote, unquote
from tracewarehouse.formats.kineto.batch import CODES, Batch
from tracewarehouse.formats.kineto.typed_args import TYPED_TEXTS
from tracewarehouse.formats.redact import clean_value, flagged, redact, redact_events, suspects

if TYPE_CHECKING:
    from tracewarehouse.formats.kineto.columns import BatchColumns, Rows
    from tracewarehouse.formats.kineto.words import Dictionaries, Words

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
