"""Runs in HTA's own Python: the critical path of one trace, in some windows, results and errors as JSON.

python critical_runner.py REQUEST.json RESULT.json. It may take the time and the memory that it is given.
"""

from __future__ import annotations

import hashlib
import json
import resource
from collections import defaultdict
from typing import Any

import runner
from runner import guarded, loaded, run

MEMORY_BYTES = 6 << 30
runner.LIMIT_S = 1_200


class NoPath(Exception):
    """HTA says itself that its graph is none that it can follow."""


def critical(analysis: Any, rank: int, annotation: str, instance: int) -> Any:
    """Length of the critical path by what it is bound by, its nodes, and the graph that it was found in."""
    found = analysis.critical_path_analysis(rank, annotation, instance)
    if found is None:
        return None
    graph, ok = found
    if not ok:
        raise NoPath
    table = graph.get_critical_path_breakdown()
    places = [(int(node.ev_idx), bool(node.is_start)) for node in map(graph.node_list.__getitem__, on(graph))]
    return {
        "length": float(table["duration"].sum()),
        "by_bound": {k: float(v) for k, v in table.groupby("bound_by")["duration"].sum().items()},
        "nodes": len(places),
        "path": hashlib.sha256(json.dumps(places).encode()).hexdigest()[:16],
        "edges": edges(graph),
    }


def on(graph: Any) -> list[int]:
    """The nodes of the path."""
    return list(graph.critical_path_nodes)


def edges(graph: Any) -> dict[str, tuple[int, float]]:
    """Edges of the whole graph by type: how many, and their weights summed."""
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for _, _, edge in graph.edges(data="object"):
        count, weight = found[edge.type.name]
        found[edge.type.name] = (count + 1, weight + float(edge.weight))
    return dict(found)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The path in each window, by the window's name."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    analysis, outcome = loaded(request)
    found = {"load": outcome}
    if analysis is not None:
        first = min(analysis.t.traces)
        for name, (annotation, instance) in request["windows"].items():
            found[name] = guarded(lambda a=annotation, i=instance: critical(analysis, first, a, i))
    return found


if __name__ == "__main__":
    run(answer)
