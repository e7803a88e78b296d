"""Paths of names from the outermost to the innermost; each distinct one is its last name and the rest.

A path longer than `LONGEST` names is told from its inner end: its text begins with an ellipsis.
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
# A tree with fewer nodes per level is narrow: a level costs as much as this many nodes one by one.
_NODES_PER_LEVEL: Final = 32
# Characters of texts that are remembered to begin others with.
_REMEMBERED: Final = 1 << 22
_CACHED_WORDS: Final = 1 << 16


class Paths:
    """Distinct paths; path -1 is empty. `words` are the names."""

    def __init__(self, words: pa.Array) -> None:
        self._word = lru_cache(_CACHED_WORDS)(lambda word: str(words[word].as_py()))
        self._known: dict[tuple[int, int], int] = {}
        self._last: list[int] = []
        self._rest: list[int] = []
        self._names: list[int] = []
        self._texts: dict[int, str] = {}
        self._remembered = 0

    def __len__(self) -> int:
        return len(self._last)

    def longer(self, rest: int, word: int) -> int:
        """The path with one more name at its inner end; without a name (-1) the path itself."""
        if word < 0:
            return rest
        found = self._known.get((rest, word))
        if found is None:
            found = self._known[rest, word] = len(self._last)
            self._last.append(word)
            self._rest.append(rest)
            self._names.append(1 if rest < 0 else self._names[rest] + 1)
        return found

    def of_tree(self, parent: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The path of each node of a tree: that of its parent, which stands before it, and its own name."""
        levels = _levels(parent)
        if not levels.size or int(levels.max()) * _NODES_PER_LEVEL > len(parent):
            return self._one_by_one(parent, words)
        found = np.full(len(parent) + 1, -1, np.int32)  # the last stands for no parent
        order = np.argsort(levels.astype(np.min_scalar_type(int(levels.max()))), kind="stable")
        for nodes in np.split(order, np.cumsum(np.bincount(levels)[1:])[:-1]):
            key = (found[parent[nodes]].astype(np.int64) + 1) << 32 | (words[nodes].astype(np.int64) + 1)
            distinct, number = np.unique(key, return_inverse=True)
            codes = [self.longer((each >> 32) - 1, (each & 0xFFFFFFFF) - 1) for each in distinct.tolist()]
            found[nodes] = np.array(codes, np.int32)[number]
        return found[:-1]

    def _one_by_one(self, parent: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.int32]:
        found: list[int] = []
        for above, word in zip(parent.tolist(), words.tolist(), strict=True):
            found.append(self.longer(found[above] if above >= 0 else -1, word))
        return np.array(found, np.int32)

    def of_names(self, words: Iterable[int], rest: int = -1) -> int:
        """The path of these names, outermost first."""
        for word in words:
            rest = self.longer(rest, word)
        return rest

    def texts(self, paths: Iterable[int]) -> list[str]:
        """The text of each path."""
        return [self._text(path) for path in paths]

    def lengths(self, paths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The number of names that the text of each path holds."""
        names = np.minimum(np.array([*self._names, 0], np.int64), LONGEST)
        found: NDArray[np.int64] = names[paths]
        return found

    def _text(self, path: int) -> str:
        rest = self._rest[path]
        last = self._word(self._last[path])
        if rest < 0:
            return last
        if self._names[path] > LONGEST:
            return self._walked(path)
        above = self._texts.get(rest)
        if above is None:
            above = self._walked(rest)
            self._remember(rest, above)
        return f"{above}{_BETWEEN}{last}"

    def _remember(self, path: int, text: str) -> None:
        if self._remembered > _REMEMBERED:
            self._texts.clear()
            self._remembered = 0
        self._texts[path] = text
        self._remembered += len(text)

    def _walked(self, path: int) -> str:
        names: list[str] = []
        last, rest, word = self._last, self._rest, self._word
        while path >= 0 and len(names) < LONGEST:
            names.append(word(last[path]))
            path = rest[path]
        if path >= 0:
            names.append(_CUT)
        names.reverse()
        return _BETWEEN.join(names)


def _levels(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """How far each node is from its root, which is 1, by ancestors twice as far up each time."""
    level, above = np.ones(len(parent), np.int32), parent.copy()
    active = np.flatnonzero(above >= 0)
    while active.size:
        by_way_of = above[active]
        further = above[by_way_of]
        level[active] += level[by_way_of]
        above[active] = further
        active = active[further >= 0]
    return level
