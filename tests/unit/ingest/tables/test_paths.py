"""Paths of names: each distinct one once, however it is built."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tracewarehouse.ingest.tables import model as module
from tracewarehouse.ingest.tables.model import LONGEST, Paths

WORDS = pa.array(["a", "b", "c"])


@pytest.mark.parametrize("per_level", [0, 1 << 30])
@pytest.mark.parametrize("seed", range(20))
def test_a_tree_level_by_level_and_node_by_node(
    monkeypatch: pytest.MonkeyPatch, seed: int, per_level: int
) -> None:
    monkeypatch.setattr(module, "_NODES_PER_LEVEL", per_level)
    luck = Random(seed)
    count = luck.choice((0, 1, 5, 80))
    parent = [luck.randrange(-1, n) for n in range(count)]
    words = [luck.randrange(-1, 3) for _ in range(count)]
    wanted: list[str] = []
    for above, word in zip(parent, words, strict=True):
        texts = [
            text for text in (wanted[above] if above >= 0 else "", "abc"[word] if word >= 0 else "") if text
        ]
        wanted.append(" > ".join(texts))
    paths = Paths(WORDS)
    found = paths.of_tree(np.array(parent, np.int32), np.array(words, np.int32)).tolist()
    assert [paths.texts([path])[0] if path >= 0 else "" for path in found] == wanted
    assert len(paths) == len({text for text in wanted if text}) == len({path for path in found if path >= 0})


def test_texts_do_not_depend_on_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED_CHARACTERS", 5)
    paths = Paths(WORDS)
    long = paths.of_names([0, 1, 2, 0, 1])
    other = paths.of_names([1, 2])
    assert paths.texts([long, other, long]) == ["a > b > c > a > b", "b > c", "a > b > c > a > b"]
    assert paths.lengths(np.array([long, other, -1])).tolist() == [5, 2, 0]


def test_a_long_path_keeps_its_inner_end() -> None:
    paths = Paths(WORDS)
    whole = paths.of_names([0] * LONGEST)
    one_more, longer = paths.of_names([*[0] * LONGEST, 1]), paths.of_names([*[0] * LONGEST, 1, 2])
    assert paths.texts([whole]) == [" > ".join("a" * LONGEST)]
    assert paths.texts([one_more]) == [" > ".join(["…", *"a" * (LONGEST - 1), "b"])]
    assert paths.texts([longer]) == [" > ".join(["…", *"a" * (LONGEST - 2), "b", "c"])]
    assert paths.lengths(np.array([longer])).tolist() == [LONGEST]
