"""Tables `modules` and `kernel_modules` against the brute-force answer, on random and simulated traces."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import sketch
import tracewarehouse as tw
from conftest import deep
from simulated import SMALL
from witness import modules, random_modules
from witness.trace import read

RANKS = 3
OWNER = ("module_id", "forward_id", "module_path", "attribution_method")


def compare(wh: tw.Warehouse, rank: int, path: Path) -> Counter[str | None]:
    """Compares both tables of a rank with the witness; how often each kind of evidence occurs."""
    trace = read(path)
    found = wh.query(f"SELECT event_id, module_path FROM modules WHERE rank = {rank}", limits=None).rows()
    assert {row["event_id"]: row["module_path"] for row in found} == modules.modules(trace)
    rows = wh.query(
        f"SELECT kernel_id, {', '.join(OWNER)} FROM kernel_modules WHERE rank = {rank}", limits=None
    ).rows()
    owners = {row["kernel_id"]: modules.Owner(*(row[name] for name in OWNER)) for row in rows}
    wanted = dict(modules.owners(trace))
    assert owners == wanted
    return Counter(owner.attribution_method for owner in wanted.values())


@pytest.mark.parametrize("seed", [0, 1, *deep(2, 3, 4, 5, 6, 7)])
def test_random_traces(seed: int, tmp_path: Path) -> None:
    sketch.write("\n".join(random_modules.sketch("a", rank, seed) for rank in range(RANKS)), tmp_path)
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "a", run="a", jobs=1)
    hows: Counter[str | None] = Counter()
    for rank in range(RANKS):
        (path,) = (tmp_path / "a").glob(f"rank{rank}.json*")
        hows += compare(wh, rank, path)
    assert set(hows) == {"enclosing", "sequence", "accumulation", None}
    assert wh.query("SELECT count(*) AS n FROM modules WHERE recompute", limits=None).rows()[0]["n"] > 0


def test_a_simulated_run(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "a", ranks=1, **{**SMALL, "layers": 1})
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "a", run="a", jobs=1)
    hows = compare(wh, 0, tmp_path / "a" / "rank0.json.gz")
    assert hows["enclosing"] and hows["sequence"]
