"""Large tables made in parts are row for row what they are in one piece, however small the parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import sketch
import tracewarehouse as tw
from table_cases import rows, tables_of
from tracewarehouse import engine
from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest import sql_tables as tables
from witness import random_operators, random_traces

RANDOM = (random_traces.Rank, random_operators.Rank)


def random_ranks(folder: Path) -> list[Path]:
    """Dense ranks, and ones with trees of operators."""
    drawn = (RANDOM[rank % 2]("random", rank, Random(f"parts/{rank}")) for rank in range(6))
    return sketch.write("\n".join(line for rank in drawn for line in rank.draw()), folder)


def simulated_rank(folder: Path) -> list[Path]:
    """A rank with modules, passes and collectives."""
    tw.simulate(folder, ranks=2, layers=1, steps=1)
    return [min(folder.rglob("*.json*"))]


def digest(con: engine.Connection, table: str) -> tuple[object, ...]:
    return rows(con, f"SELECT count(*), bit_xor(hash(made)), sum(hash(made)::HUGEINT) FROM {table} AS made")[
        0
    ]


def made_again(con: engine.Connection, table: str) -> tuple[object, ...]:
    """The digest of the table as it is made now; the connection keeps the one it had."""
    con.execute(f"ALTER TABLE {table} RENAME TO kept")
    tables._make(con, [Catalog.load().get(table, kind="table")])
    found = digest(con, table)
    con.execute(f"DROP TABLE {table}")
    con.execute(f"ALTER TABLE kept RENAME TO {table}")
    return found


@pytest.mark.parametrize(("drawn", "at_once"), [(random_ranks, 7), (simulated_rank, 60)])
def test_parts_make_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: Callable[[Path], list[Path]], at_once: int
) -> None:
    cuts = dict(tables._CUTS)
    most = dict.fromkeys(cuts, 0)
    for path in drawn(tmp_path):
        con = tables_of(path)
        for table, cut in cuts.items():
            whole, ids = digest(con, table), tables._most(con, cut)
            monkeypatch.setitem(tables._CUTS, table, replace(cut, at_once=at_once))
            assert made_again(con, table) == whole, (path, table)
            monkeypatch.setitem(tables._CUTS, table, cut)
            if whole[0]:
                most[table] = max(most[table], ids // at_once + 1)
    assert min(most.values()) > 3
