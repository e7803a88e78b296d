"""Mutants of the list, checked again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from listing import NO_CHANGE, Line, read

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def every() -> list[Line]:
    """The lines of the list."""
    return [line for lines in read().values() for line in lines]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module, prepared."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("laws", "simulation"):
            patch.syspath_prepend(str(Path(__file__).parents[1] / name))
        import worker

        worker.prepare(str(tmp_path_factory.mktemp("mutation")))
        yield worker
        worker.KILLERS.clear()


@pytest.mark.parametrize(("kinds", "count"), [(("golden ",), 60), (("law ", "truth "), 20)])
def test_the_listed_check_catches_the_mutant(
    kinds: tuple[str, ...], count: int, every: list[Line], worker: Any
) -> None:
    named = [line for line in every if line.killed_by.startswith(kinds)]
    for line in random.Random(7).sample(named, min(count, len(named))):
        assert worker.catches(line), line


def test_equivalent_mutants_are_not_caught(every: list[Line], worker: Any) -> None:
    for line in (line for line in every if line.killed_by == NO_CHANGE):
        (found,) = worker.by_laws(line.contract, [(line.change, line.place)], False)
        assert found.killed_by == NO_CHANGE, found
