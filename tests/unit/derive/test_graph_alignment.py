"""Alignment of replays with captures, against a search through all ways to leave launches out."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from tracewarehouse.derive.graphs import align

CAPTURED = list("abcabdefghijkl")


def brute(captured: list[str], replayed: list[str]) -> tuple[tuple[int, ...], ...] | None:
    """The possible positions of each replayed name over all ways to leave out captured launches."""
    ways = [
        kept
        for kept in combinations(range(len(captured)), len(replayed))
        if [captured[place] for place in kept] == replayed
    ]
    return tuple(tuple(sorted(set(places))) for places in zip(*ways, strict=True)) if ways else None


@pytest.mark.parametrize("seed", range(30))
def test_positions_are_those_of_all_ways_to_leave_a_launch_out(seed: int) -> None:
    draw = Random(seed)
    captured = [draw.choice("abc") for _ in range(12)]
    replayed = list(captured)
    del replayed[draw.randrange(12)]
    if draw.random() < 0.2:
        replayed[draw.randrange(11)] = "z"
    found = align(captured, replayed, may_be_cut=False)
    assert (found.positions if found else None) == brute(captured, replayed)


def test_equal_lists_align_by_position() -> None:
    found = align(CAPTURED, CAPTURED, may_be_cut=False)
    assert found is not None and found.exact
    assert found.positions == tuple((place,) for place in range(len(CAPTURED)))


def test_a_replay_that_lacks_more_than_a_launch_is_another_graph() -> None:
    assert align(CAPTURED, CAPTURED[2:], may_be_cut=False) is None
    assert align(CAPTURED, CAPTURED[:5], may_be_cut=False) is None
    assert align(list("ab"), ["a"], may_be_cut=False) is None
    assert align(CAPTURED, [], may_be_cut=True) is None


def test_a_cut_replay_is_the_start_of_its_capture() -> None:
    found = align(CAPTURED, CAPTURED[:5], may_be_cut=True)
    assert found is not None and not found.exact
    assert found.positions == tuple((place,) for place in range(5))
    assert align(CAPTURED, CAPTURED[6:], may_be_cut=True) is None
