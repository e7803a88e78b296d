"""The graph of HTA's critical path, edge by edge in HTA's order, and the longest way through it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from witness.hta.rules import Fails

Pair = tuple[int, int]


@dataclass
class Edge:
    """`type` is HTA's; `event` is the event that the time belongs to, None without one."""

    type: str
    weight: int
    event: int | None = None


@dataclass
class Digraph:
    """Nodes in the order in which edges first name them, edges in the order in which they were first made."""

    after: dict[int, dict[int, Edge]] = field(default_factory=dict)
    before: dict[int, dict[int, Edge]] = field(default_factory=dict)

    def add(self, source: int, to: int, type_: str, weight: int, event: int | None = None) -> None:
        """A new edge, or another type and weight for one that is there: whose it was stays."""
        for node in (source, to):
            self.after.setdefault(node, {})
            self.before.setdefault(node, {})
        edge = self.after[source].get(to)
        if edge is None:
            self.after[source][to] = self.before[to][source] = Edge(type_, weight, event)
        else:
            edge.type, edge.weight = type_, weight
            edge.event = edge.event if event is None else event

    def edges(self) -> Iterable[tuple[int, int, Edge]]:
        """All of them."""
        return ((source, to, edge) for source, ways in self.after.items() for to, edge in ways.items())

    def in_turn(self) -> list[int]:
        """Every node after those before it, in generations. Raises Fails where there is a circle."""
        left = {node: len(ways) for node, ways in self.before.items()}
        found = [node for node, count in left.items() if not count]
        for node in found:
            for to in self.after[node]:
                left[to] -= 1
                if not left[to]:
                    found.append(to)
        if len(found) < len(left):
            raise Fails("NoPath", 16, "edges against time close a circle")
        return found

    def longest(self, weight: Callable[[Edge], int]) -> list[int]:
        """The longest way: of equally long ones the first made."""
        length: dict[int, int] = {}
        source: dict[int, int] = {}
        for node in self.in_turn():
            best, best_from = 0, node
            for at, (other, edge) in enumerate(self.before[node].items()):
                long = length[other] + weight(edge)
                if at == 0 or long > best:
                    best, best_from = long, other
            length[node], source[node] = (best, best_from) if best >= 0 else (0, node)
        if not length:
            raise Fails("AssertionError", 16, "a graph without edges has no path")
        path = [max(length, key=lambda node: length[node])]
        while source[path[-1]] != path[-1]:
            path.append(source[path[-1]])
        return path[::-1]

    def by_type(self) -> Mapping[str, Pair]:
        """Edges by type: how many, and their weights summed."""
        found: dict[str, Pair] = defaultdict(lambda: (0, 0))
        for _, _, edge in self.edges():
            count, weight = found[edge.type]
            found[edge.type] = count + 1, weight + edge.weight
        return found
