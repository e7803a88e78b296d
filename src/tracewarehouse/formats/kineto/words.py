"""Dictionaries of a file's text columns: those of the scanner and those of the row path, until either is full.

A code of 0 or more is a word of the scanner, -1 null, and -2 - n the n-th word of the row path. From the batch
in which a dictionary restarts, a column holds its texts instead of codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.kineto.batch import WORDS_BYTES, WORDS_MOST

if TYPE_CHECKING:
    from numpy.typing import NDArray

NULL: Final = -1
_FIRST_OF_ROWS: Final = -2


@dataclass
class Words:
    """The words of one column."""

    of_scanner: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    of_rows: dict[str, int] = field(default_factory=dict)
    # Words that hold a secret, by their code, without it.
    clean: dict[int, str] = field(default_factory=dict)
    is_full: bool = False
    _bytes: int = 0

    def codes_of(self, texts: pa.Array) -> NDArray[np.int32]:
        """The code of each text; new ones are added."""
        encoded = texts.dictionary_encode()
        to_code = [self._code(word) for word in encoded.dictionary.to_pylist()]
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        return np.array([*to_code, NULL], np.int32)[codes]

    def _code(self, word: str) -> int:
        known = self.of_rows.get(word)
        if known is None:
            known = self.of_rows[word] = len(self.of_rows)
            self._bytes += len(word)
            self.is_full = self.is_full or known >= WORDS_MOST or self._bytes >= WORDS_BYTES
        return _FIRST_OF_ROWS - known

    def texts(self, codes: NDArray[np.int32]) -> pa.Array:
        """The text of each code, without secrets."""
        words, places = self.dictionary()
        found = places[codes]
        return words.take(pa.array(found, mask=found < 0))

    def dictionary(self) -> tuple[pa.Array, NDArray[np.int32]]:
        """Distinct words without secrets, and where among them each code is: by codes, negative ones too."""
        scanner = self.of_scanner.to_pylist() if self.clean else self.of_scanner
        rows = list(self.of_rows)
        for code, text in self.clean.items():
            if code >= 0:
                scanner[code] = text
            else:
                rows[_FIRST_OF_ROWS - code] = text
        all_ = pa.concat_arrays([pa.array(scanner, pa.string()), pa.array(rows, pa.string())])
        count = len(self.of_scanner)
        encoded = all_.dictionary_encode()
        places = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        # Index -1 is null, -2 the first word of the row path, and so on: the end of the array, backwards.
        return encoded.dictionary, np.concatenate([places[:count], places[count:][::-1], [np.int32(NULL)]])

    def codes_with(self, text: str) -> list[int]:
        """The codes of a text in the dictionaries of the scanner and of the row path."""
        known = self.of_rows.get(text)
        found = [] if known is None else [_FIRST_OF_ROWS - known]
        place = pc.index(self.of_scanner, text).as_py()
        return found if place < 0 else [place, *found]

    def forget(self) -> None:
        """Starts empty, after a dictionary was full."""
        self.of_scanner = pa.array([], pa.string())
        self.of_rows, self.clean, self._bytes = {}, {}, 0


class Dictionaries:
    """The words of each column of a file."""

    def __init__(self) -> None:
        self.columns: dict[str, Words] = {}
        # Columns that hold texts from some batch on.
        self.plain: set[str] = set()
        self._later: dict[str, Words] = {}
        self._final: dict[str, tuple[pa.Array, NDArray[np.int32]]] = {}

    def begin(self, words: Mapping[str, pa.Array], restarted: frozenset[str]) -> None:
        """The scanner's words of the next batch."""
        for name in (*restarted, *[name for name, found in self.columns.items() if found.is_full]):
            self.plain.add(name)
        for name in self.plain:
            later = self._later.setdefault(name, Words())
            if name in restarted or later.is_full:
                later.forget()
        for name, found in words.items():
            self.of(name).of_scanner = found

    def of(self, name: str) -> Words:
        """The words that codes of the batch at hand mean."""
        if name in self.plain:
            return self._later[name]
        return self.columns.setdefault(name, Words())

    def final(self, name: str) -> tuple[pa.Array, NDArray[np.int32]]:
        """The distinct words that codes of kept batches mean, and where among them each code is."""
        if name not in self._final:
            self._final[name] = self.columns.setdefault(name, Words()).dictionary()
        return self._final[name]
