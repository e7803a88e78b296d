"""The critical path compared with brute force: every step of random traces, as ranks of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from conftest import deep
from tracewarehouse.warehouse import Warehouse
from witness import random_critical
from witness.critical import Graph, Lead, Part, Rank, graph, read_syncs
from witness.trace import read, step_number

RANKS = 30
# Seed and ranks; a few ranks of the first always run.
FIRST = (20_261, RANKS)
MORE = [(seed, RANKS) for seed in range(1, 6)]
DRAWS = [(20_261, 12), *(pytest.param(each, marks=pytest.mark.deep) for each in (FIRST, *MORE))]
Key = tuple[int, str]
Graphs = dict[Key, Graph]


@pytest.fixture(scope="module", params=DRAWS, ids=lambda draw: f"{draw[0]} {draw[1]}")
def drawn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Warehouse, Graphs]:
    """A warehouse with all steps derived, and the graph of each step by brute force."""
    folder = tmp_path_factory.mktemp("critical")
    paths = sketch.write(random_critical.run("random", *request.param), folder)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "random", run="random")
    graphs: Graphs = {}
    for path in paths:
        trace = read(path)
        rank = Rank(trace, read_syncs(path))
        number = int(path.stem.removeprefix("rank"))
        graphs |= {(number, f"step {step_number(step)}"): graph(rank, step) for step in trace.steps}
    warehouse.derive("critical_path", "random", steps=range(3))
    return warehouse, graphs


def test_paths_are_those_of_brute_force(drawn: tuple[Warehouse, Graphs]) -> None:
    warehouse, graphs = drawn
    found: dict[Key, list[Part]] = {}
    for row in warehouse.query(
        "SELECT * FROM critical_path ORDER BY rank, scope, position", limits=None
    ).rows():
        part = Part(row["category"], row["evidence"], row["event_id"], row["start_ns"], row["segment_ns"])
        found.setdefault((row["rank"], row["scope"]), []).append(part)
    assert found.keys() == graphs.keys()
    for key, made in graphs.items():
        assert found[key] == made.path(), key


def test_a_path_is_the_longest_there_is(drawn: tuple[Warehouse, Graphs]) -> None:
    warehouse, graphs = drawn
    lengths: dict[Key, int] = {}
    for row in warehouse.critical_path_breakdown().rows():
        key = (row["rank"], row["scope"])
        lengths[key] = lengths.get(key, 0) + row["path_ns"]
    for key, made in graphs.items():
        span = made.nodes[-1].at - made.nodes[0].at
        assert lengths[key] == span == made.longest(lambda lead: 1), key


SCALES: dict[str, Callable[[Graph, Lead], float]] = {
    "all=3": lambda made, lead: 3,
    "kernels=0": lambda made, lead: 0 if lead.type == "kernel" else 1,
    "kernels[kind=communication]=0.5": lambda made, lead: (
        0.5 if lead.type == "kernel" and lead.event and lead.event.kind == "communication" else 1
    ),
    "launch=0": lambda made, lead: 0 if lead.type == "launch" and lead.explains else 1,
    "host=0.5": lambda made, lead: 0.5 if lead.type == "host" else 1,
    "kernels[op=aten::mm]=2": lambda made, lead: (
        2 if lead.type == "kernel" and made.within(lead.event, "aten::mm") else 1
    ),
    "host[name=cuda*Synchronize]=0": lambda made, lead: (
        0 if lead.type == "host" and lead.event and "ynchronize" in lead.event.name else 1
    ),
}
QUICK = ("all=3", "kernels[kind=communication]=0.5", "host[name=cuda*Synchronize]=0")


@pytest.mark.parametrize("scale", [*QUICK, *deep(*(scale for scale in SCALES if scale not in QUICK))])
def test_whatif_is_the_longest_path_of_the_scaled_graph(scale: str, drawn: tuple[Warehouse, Graphs]) -> None:
    warehouse, graphs = drawn
    ranks = sorted({rank for rank, _ in graphs})[:3]
    wanted = {
        key: made.longest(partial(SCALES[scale], made)) for key, made in graphs.items() if key[0] in ranks
    }
    steps = {int(scope.removeprefix("step ")) for _, scope in wanted}  # few ranks may lack a step
    rows = warehouse.whatif("random", scale, ranks=ranks, steps=sorted(steps)).rows()
    found = {(row["rank"], row["scope"]): row["new_ns"] for row in rows if row["category"] == "length"}
    assert found == wanted


def test_segments_belong_to_their_enclosing_operators(drawn: tuple[Warehouse, Graphs]) -> None:
    warehouse, graphs = drawn
    wanted: Counter[tuple[Any, ...]] = Counter()
    for key, made in graphs.items():
        for part in made.path():
            op, name = made.owner(part)
            wanted[*key, part.category, op, name] += part.length
    found = {
        (row["rank"], row["scope"], row["category"], row["op"], row["name"]): row["path_ns"]
        for row in warehouse.critical_path_by_op().rows()
    }
    assert found == wanted


@pytest.mark.deep
@pytest.mark.parametrize("drawn", [FIRST], indirect=True)  # of other draws each need not
def test_the_random_run_has_everything(drawn: tuple[Warehouse, Graphs]) -> None:
    warehouse, _ = drawn
    types = {
        row["type"]
        for row in warehouse.query(
            "SELECT DISTINCT type FROM critical_edges WHERE is_limiting", limits=None
        ).rows()
    }
    assert types == {
        *("kernel", "sync", "wait", "graph", "stream", "launch", "host", "host_gap", "handover", "earlier"),
        *("unknown_wait", "end"),
    }
    on_path = {
        (row["category"], row["evidence"])
        for row in warehouse.query(
            "SELECT DISTINCT category, evidence FROM critical_path", limits=None
        ).rows()
    }
    assert {
        ("sync", "recorded"),
        ("sync", "name"),
        ("sync", "inferred"),
        ("kernel_gap", "inferred"),
    } <= on_path
