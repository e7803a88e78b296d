"""Searches among intervals compared with plain loops."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tracewarehouse.ingest.tables import model


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("is_native", [True, False])
def test_the_last_open_one_before(monkeypatch: pytest.MonkeyPatch, seed: int, is_native: bool) -> None:
    if not is_native:
        monkeypatch.setattr(model, "available", lambda: False)
    luck = Random(seed)
    lanes = [0]
    starts: list[int] = []
    for _ in range(luck.randint(1, 4)):
        starts += sorted(luck.randrange(40) for _ in range(luck.choice((0, 1, 20, 90))))
        lanes.append(len(starts))
    ends = [start + luck.randrange(luck.choice((1, 3, 60))) for start in starts]
    wanted: list[int] = []
    for low, high in zip(lanes, lanes[1:], strict=False):
        wanted += [
            max((m for m in range(low, n) if ends[m] > starts[n]), default=-1) for n in range(low, high)
        ]
    found = model.enclosing(np.array(starts, np.int64), np.array(ends, np.int64), np.array(lanes))
    assert found.tolist() == wanted and found.dtype == np.int32
    last = list(range(len(wanted)))
    for position, parent in reversed(list(enumerate(wanted))):
        if parent >= 0:
            last[parent] = max(last[parent], last[position])
    assert model.last_descendants(found).tolist() == last


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("inclusive", [False, True])
def test_the_last_that_reaches(seed: int, inclusive: bool) -> None:
    luck = Random(seed)
    ends = [luck.randrange(20) for _ in range(luck.choice((0, 1, 2, 7, 8, 33, 100)))]
    requested = [(luck.randint(0, len(ends)), luck.randrange(-1, 21)) for _ in range(50)]
    wanted = [
        max((n for n in range(before) if ends[n] > time or inclusive and ends[n] == time), default=-1)
        for before, time in requested
    ]
    before, times = (np.array(column, np.int64) for column in zip(*requested, strict=True))
    assert model.last_reaching(np.array(ends, np.int64), before, times, inclusive).tolist() == wanted


@pytest.mark.parametrize("seed", range(40))
def test_the_last_of_its_group_by_a_time(seed: int) -> None:
    luck = Random(seed)
    items = [(luck.randrange(4), luck.randrange(9)) for _ in range(luck.choice((0, 1, 30)))]
    requested = [(luck.randrange(5), luck.randrange(9)) for _ in range(luck.choice((0, 1, 30)))]
    wanted = [
        max(((time, n) for n, (of, time) in enumerate(items) if of == group and time <= at), default=(0, -1))[
            1
        ]
        for group, at in requested
    ]
    columns = [np.array([row[n] for row in rows], np.int64) for rows in (items, requested) for n in (0, 1)]
    assert model.last_before(*columns).tolist() == wanted


def test_equal_keys_have_one_number() -> None:
    found = model.group_numbers(np.array([3, 1, 3, 1, 3]), np.array([0, 0, 1, 0, 0])).tolist()
    assert found[0] == found[4] != found[2] and found[1] == found[3] and set(found) == {0, 1, 2}
    assert model.group_numbers(np.array([], np.int64)).tolist() == []
