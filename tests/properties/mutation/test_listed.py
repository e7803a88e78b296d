"""A sample of the mutants is caught."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from listing import NO_CHANGE, Line, lines_of, mutated

pytestmark = pytest.mark.deep
CONTRACTS, PER_CONTRACT = 20, 4
# Caught only by brute-force tests, or by golden files of contracts with the same base.
NOT_SEEN = 0.1


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module, prepared."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("properties/laws", "unit/simulation"):
            patch.syspath_prepend(str(Path(__file__).parents[2] / name))
        import worker

        worker.prepare(str(tmp_path_factory.mktemp("mutation")))
        yield worker
        worker.KILLERS.clear()


def test_mutants_are_caught(worker: Any) -> None:
    """A sample, another one each day: golden files, laws or the simulator's truth catch them."""
    chosen = random.Random(date.today().toordinal())
    left: list[Line] = []
    for contract in chosen.sample(mutated(), CONTRACTS):
        lines = [line for line, _ in lines_of(contract)]
        sample = chosen.sample(lines, min(PER_CONTRACT, len(lines)))
        known = [replace(line, killed_by="not in the sample") for line in lines if line not in sample]
        alive = [line for line in worker.by_goldens(str(contract.ref), known, False) if not line.killed_by]
        if alive:
            places = {(line.change, line.place) for line in alive}
            left += [line for line in worker.by_laws(str(contract.ref), places, False) if not line.killed_by]
    assert len(left) <= CONTRACTS * PER_CONTRACT * NOT_SEEN, left


def test_equivalent_mutants_are_not_caught(worker: Any) -> None:
    for contract in random.Random(date.today().toordinal()).sample(mutated(), CONTRACTS):
        for line in (line for line, _ in lines_of(contract) if line.reason):
            (found,) = worker.by_laws(line.contract, [(line.change, line.place)], False)
            assert found.killed_by == NO_CHANGE, found
