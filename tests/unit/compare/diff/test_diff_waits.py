"""Who is waited for, before and after."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import tracewarehouse as tw
from tracewarehouse.simulation import Noise

SETTINGS: dict[str, Any] = {
    "ranks": 4,
    "tensor": 2,
    "layers": 1,
    "steps": 6,
    "stacks": False,
    "memory": False,
}
SLOW = "slow-rank:rank=1,what=compute,factor=2"


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("waits")
    for name, injections in (("base", []), ("slow", [SLOW])):
        tw.simulate(folder / "sim" / name, **SETTINGS, noise=Noise(0, 0, 0, 0), injections=injections)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    return warehouse


def exposed(wh: tw.Warehouse, base: str, head: str) -> dict[str, Any]:
    """Rows of exposed waits in the account, by name."""
    parts = wh.diff(base, head).changes().breakdown
    assert parts is not None
    level = parts.level("breakdown")
    assert (level.base, level.head) == (parts.base_mean, parts.head_mean)
    return {row.part: row for row in level.rows if row.part.startswith("exposed_wait")}


def test_the_account_has_a_row_for_the_rank_that_is_waited_for(wh: tw.Warehouse) -> None:
    rows = exposed(wh, "base", "slow")
    assert rows["exposed_wait for rank 1"].delta > 0.5 * sum(row.delta for row in rows.values())
    sql = """
      SELECT waits_for, sum(segment_ns)::BIGINT AS ns FROM account_segments
      JOIN steps USING (run_id, rank, step) WHERE exposure = 'wait' AND NOT partial GROUP BY waits_for
    """
    waits = {row["waits_for"]: row["ns"] for row in wh.select("slow").query(sql).rows()}
    # WaitAttribution, where another test derived it, names the same rank.
    assert rows["exposed_wait for rank 1"].head >= waits[1] / (4 * 6)
    assert sum(row.head for row in rows.values()) == Fraction(sum(waits.values()), 4 * 6)
    assert list(exposed(wh, "base", "base")) in ([], ["exposed_wait"])


@pytest.mark.deep
def test_a_late_rank_is_named_in_both_directions(wh: tw.Warehouse) -> None:
    """Its own time grew, or shrank again, while the others waited for it."""
    late = wh.diff("base", "slow").changes().causes
    assert late[0].startswith("rank 1 is late: its own time grew by ")
    better = wh.diff("slow", "base").changes().causes
    assert better[0].startswith("rank 1 is no longer late: its own time shrank by ")


@pytest.mark.deep
def test_no_rank_is_named_where_collectives_do_not_match(wh: tw.Warehouse) -> None:
    """With one rank of the job alone, who waits for whom is unknown, and a line says so."""
    change = wh.select(ranks=[0]).diff("base", "slow").changes()
    assert change.late_rank is None
    assert any("not matched across ranks" in each for each in change.causes)
