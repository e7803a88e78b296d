"""Nesting against a plain stack: random threads, deep ones, a million slices."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from table_cases import rows
from tracewarehouse import engine
from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest import nesting
from witness.stack import Place, Slice, nest

AT_ONCE = (1, 2, 3, 7, 50, 1000)


def nested(slices: str, at_once: int = 1 << 18) -> engine.Connection:
    """A connection with `nesting` of the slices that a SELECT of event_id, thread, ts_ns, end_ns gives."""
    con = engine.connect(threads=2)
    catalog = Catalog.load()
    ordered = f"""
        SELECT 'a' AS run_id, 0 AS rank, event_id, thread, ts_ns, end_ns,
          row_number() OVER (ORDER BY thread, ts_ns, end_ns DESC, event_id) AS pre
        FROM ({slices})"""
    engine.create_table(con, catalog.get("host_slices"), ordered)
    engine.create_table(con, catalog.get("nesting"))
    nesting.fill(con, catalog.get("nesting"), at_once)
    return con


def places(con: engine.Connection) -> dict[int, Place]:
    sql = "SELECT event_id, parent_id, depth, pre, post, crosses FROM nesting"
    return {event_id: Place(*place) for event_id, *place in rows(con, sql)}


def as_values(slices: Iterable[Slice]) -> str:
    texts = [f"({s.event_id}, {s.thread}, {s.start}, {s.end})" for s in slices]
    return f"SELECT * FROM (VALUES {', '.join(texts)}) AS slice (event_id, thread, ts_ns, end_ns)"


def random_slices(seed: int) -> list[Slice]:
    """Slices that cross, meet, are equal or have no length, on up to three threads, at any 64-bit time."""
    luck = random.Random(seed)
    span, count = luck.choice((4, 30, 200, 5_000)), luck.choice((2, 20, 100, 400))
    longest = luck.choice((2, span // 4 + 1, span))
    middle = luck.choice((0, 0, 2**53, 2**62, 10_000 - 2**63))
    slices = []
    for event_id in range(count):
        start = middle + luck.randrange(-span, span)
        slices.append(Slice(event_id, luck.randint(1, 3), start, start + luck.randrange(longest)))
    return slices


@pytest.mark.parametrize("seed", range(60))
def test_random_threads_nest_as_a_stack_nests_them(seed: int) -> None:
    slices = random_slices(seed)
    assert places(nested(as_values(slices), at_once=AT_ONCE[seed % len(AT_ONCE)])) == nest(slices)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(60, 600))
def test_more_random_threads_nest_as_a_stack_nests_them(seed: int) -> None:
    slices = random_slices(seed)
    assert places(nested(as_values(slices), at_once=AT_ONCE[seed % len(AT_ONCE)])) == nest(slices)


def test_at_one_instant_ends_come_before_starts_and_zero_lengths_last() -> None:
    slices = [
        Slice(0, 1, 0, 10),
        Slice(1, 1, 10, 10),
        Slice(2, 1, 10, 20),
        Slice(3, 1, 10, 15),
        Slice(4, 1, 20, 20),
    ]
    found = places(nested(as_values(slices)))
    assert [found[n].parent_id for n in range(5)] == [None, 3, None, 2, None]
    assert found == nest(slices)


def test_of_equal_slices_the_later_in_the_file_is_inside() -> None:
    found = places(nested(as_values([Slice(5, 1, 0, 4), Slice(3, 1, 0, 4)])))
    assert found[5].parent_id == 3


def test_a_crossing_slice_keeps_its_children_and_is_flagged() -> None:
    slices = [Slice(0, 1, 0, 10), Slice(1, 1, 5, 15), Slice(2, 1, 12, 14), Slice(3, 1, 14, 30)]
    found = places(nested(as_values(slices)))
    assert [found[n].crosses for n in range(4)] == [False, True, False, True]
    assert [found[n].parent_id for n in range(4)] == [None, 0, 1, 1]
    assert found == nest(slices)


def test_ten_thousand_levels() -> None:
    con = nested(
        "SELECT i AS event_id, 1 AS thread, i AS ts_ns, 30000 - i AS end_ns FROM range(10000) AS t (i)"
    )
    assert rows(con, "SELECT max(depth), min(post), max(post), bool_or(crosses) FROM nesting") == [
        (10_000, 10_000, 10_000, False)
    ]
    assert rows(con, "SELECT count(*) FROM nesting WHERE parent_id IS DISTINCT FROM event_id - 1") == [(1,)]


def test_a_staircase_where_every_slice_crosses_the_one_before() -> None:
    con = nested(
        "SELECT i AS event_id, 1 AS thread, i AS ts_ns, i + 50000 AS end_ns FROM range(20000) AS t (i)"
    )
    assert rows(con, "SELECT max(depth), count(*) FILTER (crosses) FROM nesting") == [(20_000, 19_999)]


@pytest.mark.deep
def test_a_million_slices() -> None:
    slices = [Slice(n, n % 3, n * 7 % 999_983, n * 7 % 999_983 + 1 + n * n % 997) for n in range(1_000_000)]
    sql = """SELECT i AS event_id, i % 3 AS thread, i * 7 % 999983 AS ts_ns, ts_ns + 1 + i * i % 997 AS end_ns
        FROM range(1000000) AS t (i)"""
    con = nested(sql)
    assert places(con) == nest(slices)
