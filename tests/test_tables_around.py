"""What stands around host calls, against its definition: each pair compared."""

from __future__ import annotations

import random

import pytest

from table_cases import rows
from tracewarehouse import engine
from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest import around
from witness.stack import Place, Slice, nest

AT_ONCE = (1, 2, 3, 7, 50, 1000)


def random_places(luck: random.Random) -> dict[int, Place]:
    """Where random slices of one to three threads stand; some cross, meet, are equal or have no length."""
    span = luck.choice((4, 30, 200))
    starts = [luck.randrange(span) for _ in range(luck.choice((0, 1, 20, 300)))]
    slices = [
        Slice(n, luck.randint(1, 3), start, start + luck.randrange(span)) for n, start in enumerate(starts)
    ]
    return nest(slices)


def filled(owners: dict[int, Place], calls: dict[int, Place], at_once: int) -> engine.Connection:
    con, catalog = engine.connect(threads=1), Catalog.load()
    for name, places in (("owners", owners), ("calls", calls)):
        engine.create_table(con, catalog.get(name, kind="table"))
        for event_id, place in places.items():
            con.execute(
                f"INSERT INTO {name} (run_id, rank, event_id, pre, post) VALUES ('a', 0, ?, ?, ?)",
                [event_id, place.pre, place.post],
            )
    contract = catalog.get("around", kind="table")
    engine.create_table(con, contract)
    around.fill(con, contract, at_once)
    return con


@pytest.mark.parametrize("seed", range(40))
def test_each_owner_that_reaches_over_a_call_is_around_it(seed: int) -> None:
    luck = random.Random(seed)
    places = random_places(luck)
    kinds = {event_id: luck.choice(("owner", "call", "other")) for event_id in places}
    owners, calls = ({n: p for n, p in places.items() if kinds[n] == kind} for kind in ("owner", "call"))
    wanted = {
        (call, owner)
        for call, at in calls.items()
        for owner, over in owners.items()
        if over.pre < at.pre <= over.post
    }
    found = rows(filled(owners, calls, AT_ONCE[seed % len(AT_ONCE)]), "SELECT call_id, owner_id FROM around")
    assert len(found) == len(wanted) and set(found) == wanted


def test_without_calls_there_is_nothing() -> None:
    assert rows(filled({1: Place(None, 1, 1, 1, False)}, {}, 7), "SELECT * FROM around") == []
