"""Paths of names from the outermost to the innermost; each distinct path is a prefix and a last name.

The text of a path with more than `LONGEST` names keeps the innermost ones and begins with an ellipsis.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST: Final = 1024
_BETWEEN: Final = " > "
_CUT: Final = "…"
# Processing a level costs as much as this many single nodes: narrower trees are processed node by node.
_NODES_PER_LEVEL: Final = 32
# Maximum number of cached characters of prefix texts.
_MAX_CACHED_CHARACTERS: Final = 1 << 22
_CACHED_WORDS: Final = 1 << 16


class Paths:
    """Distinct paths; path -1 is empty. `words` are the names."""

    def __init__(self, words: pa.Array) -> None:
        self._word = lru_cache(_CACHED_WORDS)(lambda word: str(words[word].as_py()))
        self._known: dict[tuple[int, int], int] = {}
        self._last: list[int] = []
        self._prefixes: list[int] = []
        self._names: list[int] = []
        self._texts: dict[int, str] = {}
        self._cached_characters = 0

    def __len__(self) -> int:
        return len(self._last)

    def extended(self, prefix: int, word: int) -> int:
        """The path with one more name at its inner end; the path itself for no name (-1)."""
        if word < 0:
            return prefix
        found = self._known.get((prefix, word))
        if found is None:
            found = self._known[prefix, word] = len(self._last)
            self._last.append(word)
            self._prefixes.append(prefix)
            self._names.append(1 if prefix < 0 else self._names[prefix] + 1)
        return found

    def of_tree(self, parent: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The path of each node of a tree: its parent's path and its own name. Parents precede children."""
        level = levels(parent)
        if not level.size or int(level.max()) * _NODES_PER_LEVEL > len(parent):
            return self._one_by_one(parent, words)
        found = np.full(len(parent) + 1, -1, np.int32)  # the last entry is for no parent
        order = np.argsort(level.astype(np.min_scalar_type(int(level.max()))), kind="stable")
        for nodes in np.split(order, np.cumsum(np.bincount(level)[1:])[:-1]):
            key = (found[parent[nodes]].astype(np.int64) + 1) << 32 | (words[nodes].astype(np.int64) + 1)
            distinct, number = np.unique(key, return_inverse=True)
            codes = [self.extended((each >> 32) - 1, (each & 0xFFFFFFFF) - 1) for each in distinct.tolist()]
            found[nodes] = np.array(codes, np.int32)[number]
        return found[:-1]

    def _one_by_one(self, parent: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.int32]:
        found: list[int] = []
        for above, word in zip(parent.tolist(), words.tolist(), strict=True):
            found.append(self.extended(found[above] if above >= 0 else -1, word))
        return np.array(found, np.int32)

    def of_names(self, words: Iterable[int], prefix: int = -1) -> int:
        """The path of these names, outermost first."""
        for word in words:
            prefix = self.extended(prefix, word)
        return prefix

    def texts(self, paths: Iterable[int]) -> list[str]:
        """The text of each path."""
        return [self._text(path) for path in paths]

    def lengths(self, paths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The number of names in the text of each path."""
        names = np.minimum(np.array([*self._names, 0], np.int64), LONGEST)
        found: NDArray[np.int64] = names[paths]
        return found

    def _text(self, path: int) -> str:
        prefix = self._prefixes[path]
        last = self._word(self._last[path])
        if prefix < 0:
            return last
        if self._names[path] > LONGEST:
            return self._full_text(path)
        above = self._texts.get(prefix)
        if above is None:
            above = self._full_text(prefix)
            self._cache(prefix, above)
        return f"{above}{_BETWEEN}{last}"

    def _cache(self, path: int, text: str) -> None:
        if self._cached_characters > _MAX_CACHED_CHARACTERS:
            self._texts.clear()
            self._cached_characters = 0
        self._texts[path] = text
        self._cached_characters += len(text)

    def _full_text(self, path: int) -> str:
        names: list[str] = []
        last, prefix, word = self._last, self._prefixes, self._word
        while path >= 0 and len(names) < LONGEST:
            names.append(word(last[path]))
            path = prefix[path]
        if path >= 0:
            names.append(_CUT)
        names.reverse()
        return _BETWEEN.join(names)


def levels(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """The depth of each node, 1 for a root, by following ancestors twice as far in each round."""
    level, above = np.ones(len(parent), np.int32), parent.copy()
    active = np.flatnonzero(above >= 0)
    while active.size:
        ancestor = above[active]
        further = above[ancestor]
        level[active] += level[ancestor]
        above[active] = further
        active = active[further >= 0]
    return level
